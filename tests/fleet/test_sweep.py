"""A bad row means go on, a deadline means leave; one line counts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from fleet import deadline, flow
from fleet.errors import DeadlineExceeded
from fleet.flow import Flow
from fleet.sweep import SweepResult, sweep


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with capture_logs() as logs:
        yield logs


def test_a_bad_row_is_counted_and_named_and_the_rest_is_worked_through(lines: list[Any]) -> None:
    done = []

    def work(row: int) -> None:
        if row == 2:
            raise ValueError("a bad row")
        done.append(row)

    assert sweep("rows", [1, 2, 3], work, key=lambda row: f"row-{row}") == SweepResult(3, 1, "done")
    assert done == [1, 3]
    bad, summary = lines
    assert (bad["event"], bad["row"], bad["log_level"]) == ("sweep_row_failed", "row-2", "warning")
    assert (summary["processed"], summary["failed"], summary["log_level"]) == (3, 1, "warning")


def test_a_clean_sweep_says_one_line_at_info(lines: list[Any]) -> None:
    sweep("rows", [1, 2], lambda row: None)
    assert [(line["event"], line["log_level"], line["verdict"]) for line in lines] == [("sweep", "info", "done")]


def test_a_sweep_of_nothing_is_done() -> None:
    assert sweep("rows", [], lambda row: None) == SweepResult(0, 0, "done")


def test_a_deadline_within_a_row_leaves_and_the_row_is_not_counted(lines: list[Any]) -> None:
    def work(row: int) -> None:
        if row == 2:
            raise DeadlineExceeded("the soft budget is used up")

    with pytest.raises(DeadlineExceeded):
        sweep("rows", [1, 2, 3], work)
    (summary,) = lines
    assert (summary["verdict"], summary["processed"], summary["failed"]) == ("cut", 1, 0)
    assert summary["log_level"] == "warning"


def test_no_row_is_begun_after_the_budget_is_used_up() -> None:
    seen: list[int] = []

    def rows() -> Iterator[int]:
        yield 1
        while deadline.remaining():
            pass
        yield 2

    def body() -> None:
        with deadline.shielded():  # the watchdog does not strike here: the sweep has to ask by itself
            sweep("rows", rows(), seen.append)

    with pytest.raises(DeadlineExceeded):
        deadline.run_within(timedelta(seconds=0.05), body)
    assert seen == [1]


def test_the_watchdog_reaches_through_the_sweeps_own_except(lines: list[Any]) -> None:
    def spin(row: int) -> None:
        while True:
            pass

    with pytest.raises(DeadlineExceeded):
        deadline.run_within(timedelta(seconds=0.1), sweep, "rows", [1], spin)
    assert lines[-1]["verdict"] == "cut"


def test_rows_that_cannot_be_read_on_cut_the_sweep_and_it_says_how_far_it_came(lines: list[Any]) -> None:
    def rows() -> Iterator[int]:
        yield 1
        raise ConnectionError("the cursor is gone")

    with pytest.raises(ConnectionError):
        sweep("rows", rows(), lambda row: None)
    assert (lines[-1]["verdict"], lines[-1]["processed"]) == ("cut", 1)


def test_what_a_sweep_counts_it_counts_behind_a_shield(monkeypatch: pytest.MonkeyPatch) -> None:
    """A raise that struck where it wakes the thread that flushes would leave that one's lock taken."""
    shields: list[int] = []

    class Noted(threading.Event):
        def set(self) -> None:
            run = deadline.current_run()
            assert run is not None
            shields.append(run.seat.shields)

    counts = Flow(redis.Redis(), "nobody")
    counts._dirty = Noted()
    monkeypatch.setattr(flow, "_active", counts)
    deadline.run_within(timedelta(minutes=1), sweep, "rows", [0], lambda row: 1 // row)
    assert shields == [1]
