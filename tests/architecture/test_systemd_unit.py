"""The sample units keep what the engine relies on: systemd itself does not run here."""

from __future__ import annotations

from configparser import RawConfigParser
from datetime import timedelta
from pathlib import Path

import pytest
import typer.main

from config.lanes import LANES
from fleet.cli import cli
from fleet.declarations import PAST_DRAIN

FOLDER = Path(__file__).parents[2] / "config/deploy/systemd"


def unit(name: str) -> dict[str, str]:
    parser = RawConfigParser(strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(FOLDER / name)
    return dict(parser["Service"])


@pytest.fixture(scope="module")
def service() -> dict[str, str]:
    return unit("fleet-work@.service")


def test_it_gives_every_lane_its_drain_before_it_kills(service: dict[str, str]) -> None:
    longest = max(lane.drain for lane in LANES)
    assert timedelta(seconds=int(service["TimeoutStopSec"])) >= longest + PAST_DRAIN
    assert service["KillMode"] == "mixed", "SIGTERM to the children too would drain them behind the supervisor's back"


def test_it_waits_for_the_supervisors_word_and_its_watchdog(service: dict[str, str]) -> None:
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
    assert int(service["WatchdogSec"]) >= 10
    assert service["TimeoutStartSec"] == "infinity"


def test_a_child_killed_for_its_memory_does_not_stop_the_lane(service: dict[str, str]) -> None:
    assert service["OOMPolicy"] == "continue"


@pytest.mark.parametrize("name", [path.name for path in FOLDER.iterdir()])
def test_it_is_restarted_unless_the_engine_says_that_a_restart_mends_nothing(name: str) -> None:
    service = unit(name)
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("always", "2")


@pytest.mark.parametrize("name", [path.name for path in FOLDER.iterdir()])
def test_its_command_is_one_that_the_command_line_takes(name: str) -> None:
    program, command, *arguments = unit(name)["ExecStart"].split()
    assert program.endswith("/fleet")
    known = typer.main.get_command(cli).commands[command]  # type: ignore[attr-defined]
    known.make_context(command, arguments, resilient_parsing=False)
