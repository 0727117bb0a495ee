"""The night's judge reads the lines that janitors say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from books.night import judge_house
from books.night.plan import Plan
from books.night.report import Line
from fleet.app import janitors, load
from tests.conftest import ROOT, Environment


@pytest.fixture
def night(tmp_path: Path, environment: Environment, monkeypatch: pytest.MonkeyPatch) -> Plan:
    (tmp_path / "logs").mkdir()
    monkeypatch.setenv("FLEET_LOG_FORMAT", "json")
    return Plan(seconds=1, seed=1, folder=tmp_path)


def play(night: Plan, name: str) -> None:
    """A pass, as a process of the fleet runs it, with its log in the night's folder."""
    with (night.folder / "logs" / f"{name}.log").open("wb") as log:
        subprocess.run([sys.executable, "-m", "fleet", "janitor", "run", name], cwd=ROOT, stderr=log, timeout=60)


def verdict(night: Plan) -> Line:
    judged, _ = judge_house._janitors(load(ROOT), night)
    return judged


def test_passes_that_ended_are_in_order_and_one_that_never_ran_or_that_failed_is_red_and_says_why(
    night: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    *others, last = janitors(load(ROOT))
    for name in others:
        play(night, name)
    found = verdict(night)
    assert (found.verdict, found.which) == ("red", f"{last} never ran")
    play(night, last)
    assert verdict(night).verdict == "ok"
    monkeypatch.setenv("FLEET_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    play(night, "recover_stuck_syncs")
    found = verdict(night)
    assert found.verdict == "red"
    assert found.which.startswith("recover_stuck_syncs: OperationalError: (psycopg.OperationalError) connection failed")
