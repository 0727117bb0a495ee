"""The report's arithmetic: what is wrong is named, bounded, and decides the exit status."""

from __future__ import annotations

import json
from pathlib import Path

from books.night.report import Line, Report, judged, said


def test_a_claim_with_nothing_wrong_is_ok() -> None:
    assert judged("bank", "accounts synced", 3, 3).verdict == "ok"


def test_what_is_wrong_is_named_up_to_five_and_then_counted() -> None:
    line = judged("bank", "accounts synced", 9, 2, [f"account {n}" for n in range(7)])
    assert line.verdict == "red"
    assert line.which == "account 0, account 1, account 2, account 3, account 4 and 2 more"


def test_only_red_lines_make_the_exit_status_one(tmp_path: Path) -> None:
    report = Report(1, 120, [said("bank", "faults", "none"), judged("slots", "late", 0, 1, ["a"], verdict="apart")])
    assert report.exit_status == 0
    report.lines.append(judged("house", "messages left", 0, 1, ["transaction_sync 1 waiting"]))
    assert report.exit_status == 1
    report.write(tmp_path / "report.json")
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["exit_status"] == 1
    assert [Line(**line) for line in written["lines"]] == report.lines
