"""`fleet check` warns of heavy work that overlaps, by what was declared or by what runs took; it is no fault."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import redis

from fleet import entry_runs
from fleet.broker import FleetBroker
from fleet.clock import clock
from fleet.entry_runs import Run
from fleet.settings import Settings
from tests.conftest import ROOT
from tests.fleet.conftest import Fleet, WriteApp

HEAVY = """
heavy = queue('heavy')
LONG = Budget(1200 * SECOND, 1500 * SECOND, because="an OCR of a whole folder of scans")
@heavy.actor(budget=LONG)
def scan(): ...
@heavy.actor(budget=LONG)
def judge(): ...
"""
LANES = "[lane('main', 'greetings'), lane('heavy', 'heavy')]"


def nightly(scan: str, judge: str) -> str:
    more = "expires=3600 * SECOND, every=None"
    return f"[entry('scan', cron='{scan}', {more}), entry('judge', cron='{judge}', {more}), entry('greet')]"


def warned(fleet: Fleet, root: Path, *more: str, **settings: str) -> list[str]:
    done = fleet(root, "check", *more, **settings)
    assert done.returncode == 0 and "nothing found" in done.stdout
    return done.stderr.splitlines()


def test_two_heavy_entries_at_one_time_are_a_warning_with_when_and_where(fleet: Fleet, write_app: WriteApp) -> None:
    (line,) = warned(fleet, write_app(LANES, nightly("0 3 * * *", "10 3 * * *"), HEAVY))
    assert line.startswith("warning: Entries 'scan' and 'judge' overlap in lane heavy from 03:10 to 03:20, on ")
    assert "config/schedule.py" in line


def test_entries_that_follow_one_another_are_none(fleet: Fleet, write_app: WriteApp) -> None:
    assert warned(fleet, write_app(LANES, nightly("0 3 * * *", "20 3 * * *"), HEAVY)) == []


def test_what_overlaps_on_one_day_of_the_week_is_found_on_any_other(fleet: Fleet, write_app: WriteApp) -> None:
    for day in ("sun", "wed"):
        found = warned(fleet, write_app(LANES, nightly("0 3 * * *", f"10 3 * * {day}"), HEAVY))
        assert len(found) == 1 and {"sun": "Sunday", "wed": "Wednesday"}[day] in found[0]


def test_the_books_own_schedule_has_no_overlap(fleet: Fleet) -> None:
    assert warned(fleet, ROOT) == []


def test_recorded_runs_say_more_than_budgets(
    fleet: Fleet, write_app: WriteApp, redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    root = write_app(LANES, nightly("0 3 * * *", "10 3 * * *"), HEAVY)
    broker = FleetBroker(lambda: Settings(redis_url=redis_url, namespace=namespace), middleware=[])
    for entry, seconds in (("scan", 60), ("judge", 900)):
        ended = clock.now()
        took = timedelta(seconds=seconds)
        entry_runs.write(
            broker, Run(entry, f"{ended}", "m", None, 1, "w", ended - took, ended + timedelta(hours=1), ended, "done")
        )
    environment = {"FLEET_REDIS_URL": redis_url, "FLEET_NAMESPACE": namespace}
    assert len(warned(fleet, root, **environment)) == 1, "by the budgets"
    assert warned(fleet, root, "--recorded", **environment) == [], "the scan was over after a minute"
    broker.close()
