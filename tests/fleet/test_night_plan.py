"""`fleet night` and `fleet night-plan`: the night so far and as planned, from a real Redis or declarations alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zoneinfo import ZoneInfo

import pytest
import redis

from fleet import Entry, balance_by_hand, by_hand, entry_runs, wire
from fleet import app as application
from fleet.app import App
from fleet.broker import FleetBroker, keys
from fleet.clock import Night, clock
from fleet.entry_runs import Run
from fleet.night_plan import coming, known, plan, tonight, zone_of
from fleet.overlaps import expected
from fleet.settings import Settings
from fleet.timeline import Timeline
from fleet.window import window
from middleware import default_order
from tests.fleet.conftest import Fleet, WriteApp

ROOT = Path(__file__).parents[2]
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
DAY = date(2026, 3, 2)


@pytest.fixture
def app() -> App:
    return application.load(ROOT)


@pytest.fixture
def broker(redis_url: str, namespace: str, app: App) -> Iterator[FleetBroker]:
    made = FleetBroker(lambda: Settings(redis_url=redis_url, namespace=namespace), middleware=default_order())
    made.lanes, made.entries = application.process_broker().lanes, application.process_broker().entries
    yield made
    clock.set_night(None)


def ran(broker: FleetBroker, entry: str, took: timedelta, ended: datetime, slot: datetime | None = None) -> None:
    run = Run(entry, f"{ended}", "m", slot, 1, "w", ended - took, ended + HOUR, ended, "done")
    entry_runs.write(broker, run)


def segments(found: Timeline, entry: str) -> list[tuple[str, timedelta]]:
    tracks = [track for row in found.rows for track in row.tracks if track.entry == entry]
    return [(one.outcome or one.kind, one.ends - one.begins) for track in tracks for one in track.segments]


def test_a_plan_takes_how_long_runs_took_and_else_what_was_declared(app: App, broker: FleetBroker) -> None:
    before = plan(app, broker, DAY)
    assert segments(before, "nightly_audit") == [("scheduled", 2 * MINUTE)], "its soft budget"
    now = clock.now()
    for number, minutes in enumerate((9, 11, 40)):
        ran(broker, "nightly_audit", minutes * MINUTE, now - number * 24 * HOUR)
    assert segments(plan(app, broker, DAY), "nightly_audit") == [("scheduled", 40 * MINUTE)], "the p95"
    assert plan(app, None, DAY) == before


def test_a_plan_predicts_what_will_collide(app: App, broker: FleetBroker) -> None:
    assert plan(app, broker, DAY).overlaps == ()
    now = clock.now()
    for entry in ("update_all_transactions", "update_accounts"):
        ran(broker, entry, 45 * MINUTE, now)
    first, *_ = plan(app, broker, DAY).remarks()
    assert first == "01:20–01:45 update_all_transactions and update_accounts overlap in lane transaction_sync"


def test_a_paused_entry_is_paused_in_the_plan_too(app: App, broker: FleetBroker) -> None:
    by_hand.pause(broker, "nightly_audit", by="maria", because="the audit is mended")
    found = plan(app, broker, (clock.now() + timedelta(days=1)).date())
    assert [kind for kind, _ in segments(found, "nightly_audit")] == ["paused"]


def test_the_night_so_far_is_what_is_on_record(app: App, broker: FleetBroker, redis_client: redis.Redis) -> None:
    now = clock.now()
    slot = now - 20 * MINUTE
    at = wire.to_ms(slot)
    key = keys.ledger(broker.namespace, "nightly_audit")
    redis_client.xadd(key, {"verdict": "fired", "from": at, "to": at, "count": 1})
    ran(broker, "nightly_audit", 6 * MINUTE, slot + 10 * MINUTE, wire.from_ms(at))
    found = tonight(app, broker, now)
    if slot >= found.night.begins:  # else the noon of Berlin was a few minutes ago
        assert ("done", 6 * MINUTE) in segments(found, "nightly_audit")
    assert found.now == now and found.night.begins <= now < found.night.ends
    assert [row.lane for row in found.rows] == [lane.name for lane in app.lanes]


def test_the_night_says_who_switched_the_balancer_off_and_by_which_lease_its_last_decision_stands(
    app: App, broker: FleetBroker
) -> None:
    sweep = app.entry("categorize_uncategorized_transactions")
    opens = window(sweep, clock.now()).opens
    clock.set_night(Night(origin=opens + 40 * MINUTE, anchor=clock.real_now(), rate=0.001))

    def steps() -> list[tuple[timedelta, int, str]]:
        tracks = [track for row in tonight(app, broker).rows for track in row.tracks if track.entry == sweep.name]
        return [(one.begins - opens, one.places, one.text) for track in tracks for one in track.steps]

    row: dict[Any, Any] = {"at": wire.to_ms(opens + 30 * MINUTE), "places": 2, "reason": "calm", "text": "room"}
    broker.client.xadd(keys.decisions(broker.namespace, sweep.name), {**row, "epoch": 1, "numbers": "{}"})
    lease = {"places": 2, "reason": "calm", "until": wire.to_ms(opens + 42 * MINUTE)}
    broker.client.set(keys.allowance(broker.namespace, sweep.name), json.dumps(lease))
    assert steps()[1:] == [(30 * MINUTE, 2, "room")]
    balance_by_hand.switch(broker, False, [sweep], by="ann", because="a quiet night")
    clock.set_night(Night(origin=opens + 50 * MINUTE, anchor=clock.real_now(), rate=0.001))
    _, calm, (_, places, text) = steps()
    assert (calm, places) == ((30 * MINUTE, 2, "room"), 0)
    assert text.startswith("the balancer was switched off by ann: a quiet night")


def test_the_rest_of_tonight_is_planned_by_the_weeks_before_and_not_by_tonights_runs_alone(
    app: App, broker: FleetBroker
) -> None:
    now = clock.now().replace(hour=18, minute=0, second=0, microsecond=0)  # its slot is at night, still to come
    for nights in range(1, 4):
        ran(broker, "nightly_audit", 40 * MINUTE, now - nights * 24 * HOUR)
    ran(broker, "nightly_audit", MINUTE, now - HOUR)  # by hand
    assert ("scheduled", 40 * MINUTE) in segments(tonight(app, broker, now), "nightly_audit")


def test_an_entry_whose_actor_is_gone_is_left_out(app: App) -> None:
    gone = Entry("gone", cron="0 1 * * *", expires=HOUR, because="it ran in an older release")
    assert "gone" not in {one.entry.name for one in known(App(app.root, app.actors, app.lanes, (gone,)), {})}


def test_the_night_that_is_coming_begins_at_todays_noon_by_the_clocks_of_most_entries(app: App) -> None:
    assert zone_of(app.schedule) == ZoneInfo("Europe/Berlin")
    assert coming(app, datetime(2026, 3, 2, 23, 30, tzinfo=UTC)) == date(2026, 3, 3)
    assert zone_of(()) == ZoneInfo("UTC")


def test_a_lane_whose_work_is_niced_is_one_that_needs_processors(app: App) -> None:
    on_cpu = {one.lane for one in known(app, {}) if one.on_cpu}
    assert on_cpu == {"transaction_postprocess", "agent_batch"}
    assert not expected(app, app.entry("nightly_audit")).recorded


def test_the_plan_is_printed_and_drawn_without_any_server(fleet: Fleet, tmp_path: Path) -> None:
    done = fleet(ROOT, "night-plan", "--date", "2026-03-02")
    assert done.stdout.startswith("Planned: Mon 02 Mar – Tue 03 Mar 2026, Europe/Berlin")
    assert "nightly_audit" in done.stdout and "check_queue_health: 1,440" in done.stdout
    drawn = fleet(ROOT, "night-plan", "--date", "2026-03-02", "--svg", str(tmp_path / "plan.svg"))
    assert drawn.stdout == ""
    root = ElementTree.fromstring((tmp_path / "plan.svg").read_text())
    assert any("Planned: Mon 02 Mar" in (one.text or "") for one in root)


def test_a_day_that_is_none_is_refused_with_an_example(fleet: Fleet) -> None:
    done = fleet(ROOT, "night-plan", "--date", "tomorrow")
    assert done.returncode == 2 and "give a day as YYYY-MM-DD, for example 2026-03-02" in done.stderr


def test_the_night_is_printed_from_the_command_line(
    fleet: Fleet, write_app: WriteApp, redis_url: str, namespace: str
) -> None:
    root = write_app(schedule="[entry('greet', every=None, cron='0 3 * * *')]")
    settings: dict[str, Any] = {"FLEET_REDIS_URL": redis_url, "FLEET_NAMESPACE": namespace}
    fleet(root, "pause", "greet", "--because", "the hall is painted", **settings)
    shown = fleet(root, "night", **settings).stdout
    assert "UTC" in shown.splitlines()[0]
    assert any(line.startswith(" greet") and "=" in line for line in shown.splitlines())
    assert fleet(root, "night", "--svg", "-", **settings).stdout.startswith("<svg ")
    told = fleet(root, "explain", "greet", **settings).stdout.splitlines()
    assert told[0] == "entry greet" and told[1].startswith("  cron 0 3 * * * (UTC), lane main")
    unknown = fleet(root, "explain", "gret", **settings)
    assert unknown.returncode == 2 and "Did you mean the entry greet?" in unknown.stderr
