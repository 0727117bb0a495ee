"""What a soak says at its end, and its exit status."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from books.night.report import Line, judged, said
from fleet.clock import clock
from tests.soak import run, told
from tests.soak.growth import Slope
from tests.soak.invariants import Spans
from tests.soak.run import Outcome

FINE, LOST = said("house", "dead letters", "none"), judged("messages", "messages sent", 2, 1, ["message a"])
STEADY, LEAK = Slope("threads", "beat", 8, 8, 0.1), Slope("threads", "beat", 8, 30, 22.0, 1.0)
UNSURE = Slope("open files", "worker of sync", 60, 166, 74.6, 43.8)
MADE = Counter({"kill_worker": 3, "kill_leader": 1})


def outcome(lines: list[Line], slopes: list[Slope], dealt: Counter[str] = MADE) -> Outcome:
    not_made = {"kill_leader": "NotMade: nobody leads"}
    now = clock.now()
    return Outcome(lines, slopes, dealt, MADE, not_made, {"lane": 1}, 5, 1800.0, Spans(now, now, now))


def last_line(found: Outcome) -> str:
    console = Console(file=StringIO(), width=160, emoji=False)
    told.show(found, 1, console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "4 faults: kill leader 1, kill worker 3" in printed and "kill leader: NotMade: nobody leads" in printed
    return str(printed.splitlines()[-1])


@pytest.mark.parametrize(
    ("lines", "slopes", "dealt", "red", "line"),
    [
        ([FINE], [STEADY], MADE, [], "Nothing broken, nothing grew beyond its bound."),
        ([FINE], [], MADE, [], "Nothing broken."),
        ([FINE, LOST], [STEADY], MADE, ["messages sent"], "Broken: messages sent."),
        ([FINE], [LEAK], MADE, ["threads of beat"], "Broken: threads of beat."),
        ([FINE], [STEADY, UNSURE], MADE, [], "Nothing broken. Not decided, 1: open files of worker of sync."),
        (
            [FINE],
            [STEADY],
            MADE + Counter(hold_elastic=2),
            ["hold elastic, dealt 2 times, never made"],
            "Broken: hold elastic, dealt 2 times, never made.",
        ),
        (
            [FINE],
            [STEADY],
            MADE + Counter(hold_elastic=1),
            [],
            "Nothing broken, nothing grew beyond its bound. Not decided, 1: hold elastic, dealt once, not made.",
        ),
    ],
)
def test_what_broke_grew_or_never_came_about_is_named_and_makes_the_exit_status(
    lines: list[Line], slopes: list[Slope], dealt: Counter[str], red: list[str], line: str, tmp_path: Path
) -> None:
    found = outcome(lines, slopes, dealt)
    assert last_line(found) == line
    assert found.red == red
    told.write(found, 1, tmp_path / "soak.json")
    assert json.loads((tmp_path / "soak.json").read_text())["red"] == red


def test_a_figure_that_is_not_decided_is_not_said_to_be_ok() -> None:
    console = Console(file=StringIO(), width=160, emoji=False)
    told.show(outcome([FINE], [UNSURE]), 1, console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    (row,) = [line for line in printed.splitlines() if "│ open files" in line]
    assert "not decided" in row and "ok" not in row


def test_a_judge_that_breaks_is_red_and_takes_nothing_along(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(*_: object) -> Iterator[Line]:
        yield FINE
        raise OSError("the bank is gone")

    monkeypatch.setattr(run, "judge", judge)
    now, soak = clock.now(), run.Soak.__new__(run.Soak)
    soak._stage, soak._watch, soak._console = None, None, Console(file=StringIO())  # type: ignore[assignment]
    first, last = soak._judged(Spans(now, now, now))
    assert first == FINE and last.verdict == "red" and "the bank is gone" in last.which
