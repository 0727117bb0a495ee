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


def outcome(lines: list[Line], slopes: list[Slope]) -> Outcome:
    made, not_made = Counter({"kill_worker": 3}), {"kill_leader": "NotMade: nobody leads"}
    now = clock.now()
    return Outcome(lines, slopes, made, not_made, {"lane": 1}, 5, 1800.0, Spans(now, now, now))


@pytest.mark.parametrize(
    ("lines", "slopes", "broken"),
    [([FINE], [STEADY], ""), ([FINE, LOST], [STEADY], "messages sent"), ([FINE], [LEAK], "threads of beat")],
)
def test_what_broke_or_grew_is_named_and_makes_the_exit_status(
    lines: list[Line], slopes: list[Slope], broken: str, tmp_path: Path
) -> None:
    console, found = Console(file=StringIO(), width=160, emoji=False), outcome(lines, slopes)
    told.show(found, 1, console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "3 faults: kill worker 3" in printed and "kill leader: NotMade: nobody leads" in printed
    assert (f"Broken: {broken}" if broken else "Nothing broken") in printed
    assert found.broken is bool(broken)
    told.write(found, 1, tmp_path / "soak.json")
    assert json.loads((tmp_path / "soak.json").read_text())["broken"] is bool(broken)


def test_a_judge_that_breaks_is_red_and_takes_nothing_along(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(*_: object) -> Iterator[Line]:
        yield FINE
        raise OSError("the bank is gone")

    monkeypatch.setattr(run, "judge", judge)
    now, soak = clock.now(), run.Soak.__new__(run.Soak)
    soak._stage, soak._watch, soak._console = None, None, Console(file=StringIO())  # type: ignore[assignment]
    first, last = soak._judged(Spans(now, now, now))
    assert first == FINE and last.verdict == "red" and "the bank is gone" in last.which
