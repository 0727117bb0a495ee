"""What `make check` says of known faults: each is named, and that nobody was asked is said in as many words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import dependency_audit as audit

ROOT = Path(__file__).parents[2]
CLEAN: dict[str, Any] = {"name": "calm", "version": "1.0", "vulns": []}
SKIPPED: dict[str, Any] = {"name": "quiet", "skip_reason": "Dependency not found"}
FAULTY: dict[str, Any] = {"name": "holey", "version": "2.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"]}]}


def test_what_was_looked_at_is_counted_and_what_was_not_is_named() -> None:
    assert audit._said("locks.txt", [CLEAN, SKIPPED], "") == (
        "pip-audit: 1 packages of locks.txt looked at; NOT looked at: quiet"
    )


@pytest.mark.parametrize(("rows", "why"), [([SKIPPED], ""), ([], "no answer within 180 s")])
def test_where_nobody_could_be_asked_it_says_that_it_did_not_run(rows: list[dict[str, Any]], why: str) -> None:
    said = audit._said("locks.txt", rows, why)
    assert said.startswith("pip-audit DID NOT RUN for locks.txt: ")
    assert (why or "Dependency not found") in said


def test_a_known_fault_is_named_with_the_version_that_mends_it() -> None:
    assert audit._faults(FAULTY) == ["holey 2.0: PYSEC-1, mended in 2.1"]
    assert audit._faults(CLEAN) == audit._faults(SKIPPED) == []


@pytest.mark.parametrize(
    ("file", "code"), [("requirements.txt", 1), ("requirements-lowest.txt", 1), ("requirements-peers/saq.txt", 0)]
)
def test_a_fault_of_what_is_only_measured_against_is_told_and_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: str, code: int
) -> None:
    monkeypatch.setattr(audit, "_asked", lambda asked: ([FAULTY if asked == file else CLEAN], ""))
    assert audit.main(["requirements-dev.txt", file]) == code
    assert "holey 2.0: PYSEC-1, mended in 2.1" in capsys.readouterr().out


def test_make_check_audits_everything_that_is_locked() -> None:
    (line,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if "-m tests.dependency_audit" in line]
    named = {path for pattern in line.split() if pattern.endswith(".txt") for path in ROOT.glob(pattern)}
    assert named == {*ROOT.glob("requirements*.txt"), *ROOT.glob("requirements-peers/*.txt")}
