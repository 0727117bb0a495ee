"""What the pages show of a fleet, and what they say where they cannot."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import redis
from sqlalchemy import text

from fleet import by_hand
from fleet.alerts import KINDS, Alert
from fleet.app import App
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.console.letters import address
from fleet.console.mending import BY_KIND, mends
from fleet.console.pages.night import KEPT_SECONDS, Kept
from fleet.console.runbook import Runbook
from fleet.probe import QueueReading
from fleet.readings import Readings
from fleet.storage import database
from fleet.timeline import Night, Recorded, Timeline, timeline
from fleet.workers.presence import Report
from tests.broker.letters import fill
from tests.console import staged, staged_night
from tests.console.conftest import ROOT, Client
from tests.waiting import wait_until


def words(page: str) -> str:
    """The text of a page, in one line."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def test_the_first_page_says_that_nobody_leads_and_that_no_lane_is_served(client: Client) -> None:
    shown = words(client().get("/").text)
    assert "No beat leads: nothing of the schedule is sent." in shown
    assert "Nobody serves the lane agent_realtime." in shown
    assert "No reading of the queues was ever taken" in shown
    for answer in ("who is hurt", "mends itself", "what to do"):
        assert shown.count(answer) == 7


def test_the_first_page_of_a_fleet_in_order_says_so_and_shows_its_figures(client: Client, fleet: staged.Staged) -> None:
    shown = words(client().get("/").text)
    assert "No beat leads" not in shown and "Nobody serves" not in shown
    assert "night-1 leads, 2 beats" in shown and "38 dead letters" in shown and "1 wait for a person" in shown


def test_an_open_alert_stands_on_the_first_page_with_its_four_answers(client: Client, fleet: staged.Staged) -> None:
    for path in ("/", "/alerts"):
        shown = words(client().get(path).text)
        assert "9m12s" in shown and "threshold 5m" in shown
        assert "Whoever uploaded receipts and looks for what was read from them" in shown
        assert shown.count("mends itself") == 2 and shown.count("what to do") == 2
    assert "2 things are wrong." in words(client().get("/").text)


def test_where_nothing_is_probed_the_pages_say_so(client: Client, fleet: staged.Staged) -> None:
    fleet.broker.client.delete(keys.readings(fleet.broker.namespace))
    assert "No reading of the queues was ever taken" in words(client().get("/").text)
    assert "Nothing was ever probed" in words(client().get("/alerts").text)


def test_the_night_is_drawn_and_told_in_words_and_tomorrow_is_planned(client: Client, fleet: staged.Staged) -> None:
    page = client().get("/night").text
    assert page.count("<svg") >= 1 and 'class="night"' in page and "Europe/Berlin" in page
    assert "categorize_uncategorized_transactions" in page and "run_evals" in page
    assert "fleet night-plan" in client().get("/night?which=tomorrow").text


def a_timeline() -> Timeline:
    return timeline([], Recorded(), Night.of(date(2026, 3, 2), ZoneInfo("UTC")), None)


def test_a_night_is_drawn_once_for_everybody_within_half_a_minute() -> None:
    at = [0.0]
    kept, made = Kept(lambda: at[0]), []

    def make() -> Timeline:
        made.append(at[0])
        return a_timeline()

    kept.get("tonight", make)
    kept.get("tonight", make)
    at[0] = KEPT_SECONDS + 1
    kept.get("tonight", make)
    kept.get("tomorrow", make)
    assert made == [0.0, at[0], at[0]]


def test_while_a_drawing_takes_long_others_are_made_and_the_one_before_is_shown() -> None:
    at, begun, let_go = [0.0], threading.Event(), threading.Event()
    kept = Kept(lambda: at[0])

    def slowly() -> Timeline:
        begun.set()
        let_go.wait(30)
        return a_timeline()

    before = kept.get("tonight", a_timeline)
    at[0] = KEPT_SECONDS + 1
    with ThreadPoolExecutor() as pool:
        drawn = pool.submit(kept.get, "tonight", slowly)
        assert begun.wait(10)
        try:
            assert pool.submit(kept.get, "tonight", a_timeline).result(5) is before
            assert pool.submit(kept.get, "tomorrow", a_timeline).result(5) is not before
        finally:
            let_go.set()
        assert drawn.result(5) is kept.get("tonight", a_timeline) is not before


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("transaction_postprocess", "340 wait"),
        ("nightly_audit", "nightly_audit"),
        ("upload/1", "Nothing is named"),
        ("nightly_audi", "Did you mean the entry nightly_audit?"),
        ("<script>alert(1)</script>", "Nothing is named"),
    ],
)
def test_a_name_is_explained_or_said_to_mean_nothing(
    client: Client, fleet: staged.Staged, what: str, says: str
) -> None:
    page = client().get("/explain", params={"what": what}).text
    assert says in words(page) and "<script>alert" not in page


def test_a_lane_without_a_process_is_worse_where_messages_wait(client: Client, fleet: staged.Staged) -> None:
    fleet.reports = [report for report in fleet.reports if report.name != "transaction_sync"]
    wait_until(lambda: len(staged.seen(fleet.broker)) == len(fleet.reports))
    page = client().get("/").text
    assert (
        "Nobody serves the lane transaction_sync." in page
        and "1,204 messages of transaction_sync, charging wait." in page
    )
    assert '<li class="card bad">' in page


def test_the_lanes_page_shows_depth_age_and_every_job_with_its_budget(client: Client, fleet: staged.Staged) -> None:
    shown = words(client().get("/lanes").text)
    assert "transaction_sync 1/1 transaction_sync 1,204 1m" in shown
    assert "transaction_postprocess 340 9m" in shown
    assert "submit_approved_run agent_realtime body 1m4" in shown and "1m30s / 2m" in shown
    assert f"{sum(one.kind != 'beat' for one in fleet.reports)} processes" in shown


def test_the_beats_page_says_who_leads_since_when_in_which_term(client: Client, fleet: staged.Staged) -> None:
    shown = words(client().get("/beats").text)
    assert "Term 41 is held by night-1, pid 77, for 3h12m" in shown
    assert "follows" in shown


def test_a_paused_entry_and_its_ledger_are_shown(client: Client, fleet: staged.Staged) -> None:
    by_hand.pause(fleet.broker, "nightly_audit", by="ann", because="the bank is closed today")
    staged_night.line(fleet.broker.client, fleet.broker.namespace, "run_evals", "expired", clock.now())
    shown = words(client().get("/schedule").text)
    assert "paused by ann: the bank is closed today" in shown and "expired" in shown
    assert "ann: the bank is closed today" in words(client().get("/schedule/nightly_audit").text)


def test_a_paused_elastic_entry_is_shown_on_the_balancers_page(client: Client, fleet: staged.Staged) -> None:
    by_hand.pause(fleet.broker, "run_evals", by="ann", because="the model is closed today")
    shown = words(client().get("/balancer").text)
    assert "run_evals paused" in shown and "the model is closed today" in shown
    assert "No chain of it begins another chunk" not in words(client().get("/schedule/nightly_audit").text)


def test_runs_are_shown_with_their_progress_those_for_a_person_first(client: Client, fleet: staged.Staged) -> None:
    shown = words(client().get("/runs").text)
    assert "1 submit needs review oldest" in shown and "61 of 95" in shown
    only = words(client().get("/runs?which=review").text)
    assert "ask by its key, then mark it" in only and "61 of 95" not in only
    assert words(client().get("/runs?which=open&kind=upload").text).count("changed") == 1


def test_without_the_applications_view_of_runs_the_page_says_what_to_make(client: Client, fleet: staged.Staged) -> None:
    with database().begin() as connection:
        connection.execute(text("ALTER VIEW fleet_runs RENAME TO away"))
    try:
        shown = words(client().get("/runs").text)
        assert "Runs cannot be read:" in shown and "fleet migrate" in shown
        assert client().get("/").status_code == 200
    finally:
        with database().begin() as connection:
            connection.execute(text("ALTER VIEW away RENAME TO fleet_runs"))


def test_the_budgets_page_names_every_actor_with_its_reason(client: Client, app: App) -> None:
    page = client().get("/budgets").text
    assert all(f"<code>{name}</code>" in page for name in app.actors)
    assert "one model answer at its p99 of 35 s" in page


def test_dead_letters_are_paged_and_filtered(client: Client, broker: FleetBroker) -> None:
    fill(broker, 120, queue="charging")
    fill(broker, 3, queue="housekeeping")
    first = client().get("/dead").text
    assert first.count("<tr>") == 51 and "Oldest first, of 123" in words(first)
    following = re.findall(r'href="(/dead\?at=[^"]+)"', first)[0].replace("&amp;", "&")
    second = client().get(following).text
    assert "charging-000050" in second and "charging-000049" not in second
    assert "housekeeping-000002" in client().get("/dead?queue=housekeeping").text
    assert "No dead letter matches." in client().get("/dead?queue=charging&actor=nobody").text
    assert client().get("/dead?queue=charing").status_code == 404


@pytest.mark.parametrize("written", ["soon", "nan", "1e400", "100000000", "-100000000", "1e9", "9" * 400])
@pytest.mark.parametrize("field", ["older", "newer"])
def test_an_age_that_no_letter_can_have_is_refused_and_says_what_to_give(
    client: Client, field: str, written: str
) -> None:
    answer = client().get("/dead", params={field: written})
    assert answer.status_code == 400
    assert f"{field} &#39;{written[:40]}&#39;: give a number of hours" in answer.text


def test_an_exception_is_without_what_its_message_brought_on_every_page_that_shows_it(
    client: Client, broker: FleetBroker
) -> None:
    staged.dead_letters(broker, "charging", 1, "charge", "failed", "ValueError: found no account of a text, page 3")
    place = f"/dead/charging/{address('charge-00000')}"
    for path in ("/dead", "/dead/act?do=discard&queue=charging", place):
        page = client().get(path).text
        assert "no account of [removed], page 3" in page and "of a text" not in page, path


def test_what_stands_in_redis_is_shown_as_text_whatever_it_is(client: Client, fleet: staged.Staged) -> None:
    nasty = "<script>alert(1)</script>"
    staged.dead_letters(fleet.broker, "charging", 1, nasty, nasty, nasty)
    fleet.reports = [*fleet.reports, Report("worker", "charging", host=nasty, phase=nasty)]
    by_hand.pause(fleet.broker, "nightly_audit", by=nasty, because=nasty)
    wait_until(lambda: any(report.host == nasty for report in staged.seen(fleet.broker)))
    for path in ("/", "/lanes", "/schedule", "/schedule/nightly_audit", "/dead", f"/dead?queue=charging&actor={nasty}"):
        page = client().get(path).text
        assert "alert(1)" not in page or "&lt;script&gt;" in page, path
        assert nasty not in page, path


def test_while_redis_does_not_answer_a_page_says_so(
    client: Client, broker: FleetBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = redis.Redis(port=1, retry=None)
    monkeypatch.setitem(broker.__dict__, "client", away)
    answer = client().get("/lanes")
    assert answer.status_code == 503 and "Redis does not answer" in answer.text


def test_the_runbook_is_a_page_with_a_place_for_every_event(client: Client) -> None:
    page = client().get("/runbook").text
    assert 'id="worker-died"' in page and 'id="relay-outbox"' in page
    assert 'href="../tests' not in page
    advice = Runbook.of(ROOT).find("#worker_died")
    assert advice is not None and advice.means.startswith("A worker process of one lane ended")
    assert "](" not in advice.mends and "`" not in advice.act


def test_an_application_without_a_runbook_has_none(tmp_path: Path) -> None:
    empty = Runbook.of(tmp_path)
    assert empty.find("worker_died") is None and empty.text == ""


def test_only_a_page_with_a_live_part_has_a_stream(client: Client) -> None:
    assert client().get("/live?page=/dead").status_code == 404
    assert client().get("/live?page=//evil").status_code == 404


def test_a_page_that_is_not_there_says_so(client: Client) -> None:
    answer = client().get("/nowhere")
    assert answer.status_code == 404 and "There is no such page" in answer.text


@pytest.mark.parametrize(
    ("comes", "ends", "says"),
    [
        (2.0, 6.0, "Yes: 2.0 come and 6.0 end a minute; at that its 340 are done in 1h25m."),
        (6.0, 6.0, "Not as it flows now: 6.0 come and 6.0 end a minute."),
        (2.0, 0.0, "Not as it stands: nothing of it ended lately (2.0 come and 0.0 end a minute)."),
        (None, None, BY_KIND["queue_lag"]),
    ],
)
def test_whether_a_jam_mends_itself_is_told_by_how_its_queue_flows(
    comes: float | None, ends: float | None, says: str
) -> None:
    now = clock.now()
    alert = Alert(staged.FOUND[0], now, now, now)
    queue = QueueReading("transaction_postprocess", 340, 0, 2, 31, None, rate_in=comes, rate_out=ends)
    assert mends(alert, Readings(now, "beat", {queue.queue: queue}, {}, {})) == says
    old = Readings(now - timedelta(hours=1), "beat", {queue.queue: queue}, {}, {})
    assert mends(alert, old) == mends(alert, None) == BY_KIND["queue_lag"]


def test_every_kind_of_alert_says_whether_it_mends_itself_and_has_a_place_in_the_runbook() -> None:
    book = Runbook.of(ROOT)
    for kind in KINDS:
        assert kind in BY_KIND
        advice = book.find(f"#{kind}")
        assert advice is not None and advice.act, kind
