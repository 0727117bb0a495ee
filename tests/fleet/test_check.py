"""`fleet check`: each contradiction between declarations is one line that says what to do."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.fleet.conftest import Fleet, WriteApp

COMPOSE = """
services:
  main:
    command: {command}
    stop_grace_period: {grace}
  redis:
    image: valkey
"""


def findings(fleet: Fleet, root: Path) -> list[str]:
    done = fleet(root, "check")
    assert "Traceback" not in done.stderr
    assert (done.returncode == 2) == bool(done.stderr)
    return done.stderr.removeprefix("fleet: ").splitlines()


@pytest.mark.parametrize(
    ("lanes", "schedule", "finding"),
    [
        ("[lane('main', 'greetings'), lane('main', 'spare')]", "[]", "Lane 'main' is declared 2 times"),
        ("[lane('a', 'greetings'), lane('b', 'greetings')]", "[]", "Queue 'greetings' is in 2 lanes (a, b)"),
        (
            "[lane('main', 'greetings', 'greting')]",
            "[]",
            "Lane 'main' serves queue 'greting', which no actor uses: Did you mean 'greetings'?",
        ),
        (
            "[lane('main', 'greetings', warm='actors.greetings:gret')]",
            "[]",
            "warm='actors.greetings:gret': actors.greetings has no function 'gret'. Did you mean 'greet'?",
        ),
        (
            "[lane('main', 'greetings', warm='warmth:ready')]",
            "[]",
            "Lane('main'), warm='warmth:ready': there is no module 'warmth'.",
        ),
        (
            "[lane('main', 'greetings')]",
            "[entry('a', actor='greet'), entry('a', actor='greet')]",
            "Entry 'a' is in the",
        ),
        (
            "[lane('main', 'greetings')]",
            "[entry('gret')]",
            "Entry 'gret': There is no actor named 'gret'. Did you mean 'greet'?",
        ),
        ("[lane('main', 'greetings')]", "[entry('greet', every=None, cron='0 25 * * *')]", "cron='0 25 * * *'"),
        (
            "[lane('main', 'greetings')]",
            "[entry('greet', expires=3 * SECOND)]",
            "expires=0:00:03 is longer than its shortest period 0:00:02",
        ),
        (
            "[lane('main', 'greetings')]",
            "[entry('greet', expires=7 * SECOND, catch_up=fleet.All(3))]",
            "expires=0:00:07 is longer than its shortest period 0:00:02 and it catches up on 3",
        ),
        (
            "[lane('main', 'greetings')]",
            "[entry('greet', expires=6 * SECOND, catch_up=fleet.All(3), jitter=2 * SECOND)]",
            "jitter=0:00:02 is not shorter than its shortest period 0:00:02",
        ),
        (
            "[lane('main', 'greetings')]",
            "[entry('greet', every=None, cron='0 3 * * *', tz='Europe/Berlin', expires=24 * 3600 * SECOND)]",
            "longer than its shortest period 23:00:00",
        ),
    ],
)
def test_a_contradiction_is_found(fleet: Fleet, write_app: WriteApp, lanes: str, schedule: str, finding: str) -> None:
    assert any(finding in line for line in findings(fleet, write_app(lanes, schedule)))


def test_an_actor_whose_queue_no_lane_serves_is_found_with_its_place_and_the_queue_that_was_meant(
    fleet: Fleet, write_app: WriteApp
) -> None:
    root = write_app(actors="@queue('greeting').actor\ndef stray(): ...\n")
    (finding,) = findings(fleet, root)
    assert "Actor 'stray'" in finding and "greetings.py:" in finding
    assert finding.endswith("Did you mean 'greetings'?")


def test_all_findings_come_at_once(fleet: Fleet, write_app: WriteApp) -> None:
    root = write_app("[lane('main', 'greetings', 'other')]", "[entry('nobody'), entry('greet', expires=9 * SECOND)]")
    assert len(findings(fleet, root)) == 3


@pytest.mark.parametrize("command", ["fleet work main", ["fleet", "--app", ".", "work", "main"]])
def test_a_container_killed_before_its_lane_has_drained_is_found(
    fleet: Fleet, write_app: WriteApp, command: object
) -> None:
    root = write_app()
    (root / "docker-compose.yml").write_text(COMPOSE.format(command=command, grace="44s"))
    (finding,) = findings(fleet, root)
    assert "docker-compose.yml, service 'main': stop_grace_period 0:00:44 is shorter than lane 'main'" in finding
    assert "give 0:00:45 or more" in finding
    (root / "docker-compose.yml").write_text(COMPOSE.format(command=command, grace="1m"))
    assert findings(fleet, root) == []


@pytest.mark.parametrize("command", ["fleet work", "fleet work nobody", "fleet beat", "''"])
def test_a_container_that_works_no_declared_lane_is_none_of_its_business(
    fleet: Fleet, write_app: WriteApp, command: str
) -> None:
    root = write_app()
    (root / "docker-compose.yml").write_text(COMPOSE.format(command=command, grace="1s"))
    assert findings(fleet, root) == [], shlex.quote(command)
