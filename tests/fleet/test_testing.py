"""What `fleet.testing` gives to an application's own tests, shown by running pytest on a small application."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fleet import embedded, testing

MINIMAL = Path(__file__).parents[2] / "examples" / "minimal"
ACTORS = """
from datetime import timedelta

from fleet import Budget, Retry, queue
from fleet.clock import clock

greetings = queue("greetings")
GREETED = []
WHY = "appends to a list, and looks at the clock once"
ONCE = Retry(attempts=1, first=timedelta(seconds=1), longest=timedelta(seconds=1))
LATER = Retry(attempts=3, first=timedelta(hours=6), longest=timedelta(hours=6))  # drawn from none of it to all


@greetings.actor(budget=Budget(timedelta(seconds=5), timedelta(seconds=9), because=WHY), retry=ONCE)
def greet(name="night"):
    if name == "nobody":
        raise ValueError("there is nobody to greet")
    GREETED.append((name, clock.now()))
    if name == "all":
        greet.send("Erika")
        greet.send("Max")


@greetings.actor(retry=LATER)
def stumble():
    GREETED.append("stumbled")
    if GREETED.count("stumbled") < 2:
        raise ConnectionError("not yet")
"""
SETTINGS = """
from fleet.settings import Settings


def settings():
    return Settings.read()
"""
TESTS = """
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from actors.greetings import GREETED, greet, stumble
from fleet.testing import JobsFailed, Jobs, NightClock

pytest_plugins = ["fleet.testing"]


@pytest.fixture(autouse=True)
def nothing_yet():
    GREETED.clear()


def test_what_is_sent_runs_and_what_that_sends_too(fleet_jobs):
    greet.send("all")
    assert fleet_jobs.run() == 3
    assert sorted(name for name, _ in GREETED) == ["Erika", "Max", "all"]
    assert fleet_jobs.waiting() == 0


def test_a_failure_is_told_with_its_traceback_and_may_be_expected(fleet_jobs):
    greet.send("nobody")
    with pytest.raises(JobsFailed, match="(?s)greet .* is a dead letter, failed:.*there is nobody to greet"):
        fleet_jobs.run()
    greet.send("nobody")
    fleet_jobs.run(may_fail=True)
    assert [letter.actor for letter in fleet_jobs.dead()] == ["greet", "greet"]


def test_the_night_stands_and_moves(fleet_jobs, fleet_night):
    ten_past_three = datetime(2026, 3, 3, 3, 10, tzinfo=ZoneInfo("Europe/Berlin"))
    fleet_night.stands_at(ten_past_three)
    greet.send("Erika")
    fleet_jobs.run()
    fleet_night.moves_by(timedelta(hours=1))
    greet.send("Max")
    fleet_jobs.run()
    assert GREETED == [("Erika", ten_past_three), ("Max", ten_past_three + timedelta(hours=1))]


def test_a_message_that_is_too_late_is_dropped(fleet_jobs, fleet_night):
    fleet_night.stands_at(datetime(2026, 3, 3, 3, 10, tzinfo=ZoneInfo("UTC")))
    late = int((datetime(2026, 3, 3, 3, 9, tzinfo=ZoneInfo("UTC"))).timestamp() * 1000)
    greet.send_with_options(args=("late",), expires_at=late)
    assert fleet_jobs.run() == 1
    assert GREETED == []


def test_a_retry_waits_for_its_time(fleet_jobs):
    stumble.send()
    fleet_jobs.run()
    assert GREETED == ["stumbled"] and fleet_jobs.waiting() == 1


@pytest.mark.parametrize("may_fail", [False, True])
def test_a_message_that_its_actor_does_not_take_is_told(fleet_jobs, may_fail):
    greet.send("Erika", "typo")
    greet.send("Max")
    with pytest.raises(JobsFailed, match="^greet .* did not run: greet.name='night'. .*: too many positional argum"):
        fleet_jobs.run(may_fail=may_fail)
    assert [name for name, _ in GREETED] == ["Max"]


def test_a_message_of_no_actor_is_told(fleet_jobs):
    greet.broker.enqueue(greet.message("Erika").copy(actor_name="gret"))
    with pytest.raises(JobsFailed, match="^gret .* did not run: no actor of this name is declared"):
        fleet_jobs.run()


def test_what_is_sent_with_a_delay_is_waited_for_and_what_comes_later_is_left(fleet_jobs):
    greet.send_with_options(args=("Erika",), delay=400)
    greet.send_with_options(args=("Max",), delay=60_000)
    assert fleet_jobs.run() == 1
    assert [name for name, _ in GREETED] == ["Erika"] and fleet_jobs.waiting() == 1


def test_an_actor_may_simply_be_called(fleet_app):
    greet("Erika")
    assert GREETED[0][0] == "Erika"


def test_an_instant_without_a_zone_is_refused(fleet_night):
    with pytest.raises(ValueError, match="has no UTC offset"):
        fleet_night.stands_at(datetime(2026, 3, 3))


def test_one_test_does_not_see_what_another_left(fleet_jobs):
    assert fleet_jobs.waiting() == 0 and fleet_jobs.dead() == []
"""


@pytest.mark.parametrize("configured", [True, False], ids=["configured servers", "embedded servers"])
def test_an_applications_own_tests_run_real_actors_and_stop_the_clock(
    servers: embedded.Urls, tmp_path: Path, configured: bool
) -> None:
    root = shutil.copytree(MINIMAL, tmp_path / "shop", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "actors" / "greetings.py").write_text(ACTORS)
    (root / "config" / "settings.py").write_text(SETTINGS)
    (root / "test_greetings.py").write_text(TESTS)
    (root / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    urls = {"FLEET_REDIS_URL": servers.redis_url, "FLEET_DATABASE_URL": servers.database_url}
    environment = {**os.environ, **(urls if configured else {})}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "12 passed" in ran.stdout


def test_the_page_names_every_fixture() -> None:
    source, page = Path(testing.__file__).read_text(), (MINIMAL.parents[1] / "docs" / "testing.md").read_text()
    fixtures = re.findall(r"^@pytest\.fixture.*\ndef (\w+)", source, re.MULTILINE)
    assert fixtures and set(fixtures) == set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
