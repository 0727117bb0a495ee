"""The runbook's table tells of every alert and every event that is logged at ERROR or above, and of no other.

A failure says which row is missing, where the event is logged, and how the row begins.
"""

from __future__ import annotations

import ast
import re

import pytest

from fleet.alerts import KINDS, Finding
from fleet.janitor import RUNBOOK
from tests.architecture.test_janitors import NAMES, anchors
from tests.architecture.words import ROOMS, Row, alerts, rows, said
from tests.conftest import ROOT

PAGE = ROOT / "docs/when-things-go-wrong.md"
ROWS = rows(PAGE)
SAID = said(ROOT)
ALERTS = alerts(ROOT / "config/deploy/prometheus/rules.yml")
# Words of a first cell that no call says: a status of a record, a metric, and what a line is called that is none.
OTHERS = {"done_with_errors", "fleet_stale_writes", "line_not_scrubbed"}


def missing(names: dict[str, str]) -> list[str]:
    """The names that no row tells of by an anchor and in backticks, each with what is to be written."""
    return [
        f'no row for {name} ({where}): add one that begins | <a id="{name}"></a>`{name}` … |'
        for name, where in names.items()
        if not any(name in row.anchors and name in row.named for row in ROWS)
    ]


def test_every_event_at_error_or_above_has_a_row() -> None:
    found = missing(SAID.loud)
    assert not found, "\n".join([str(PAGE.relative_to(ROOT)), *found])


def test_every_alert_has_a_row() -> None:
    found = missing(dict.fromkeys(ALERTS, "config/deploy/prometheus/rules.yml"))
    assert not found, "\n".join([str(PAGE.relative_to(ROOT)), *found])


def test_every_kind_of_the_fleets_own_alerts_has_a_row_where_it_sends_the_reader() -> None:
    found = missing(dict.fromkeys(KINDS, "KINDS in fleet/alerts.py"))
    assert not found, "\n".join([str(PAGE.relative_to(ROOT)), *found])
    given = {anchor for row in ROWS for anchor in row.anchors}
    assert {Finding(kind, "", "", "", "", "").runbook for kind in KINDS} <= {f"#{anchor}" for anchor in given}


def test_every_place_that_code_sends_somebody_to_is_there() -> None:
    known = {anchor for row in ROWS for anchor in row.anchors} | anchors(PAGE.read_text())
    assert str(PAGE.relative_to(ROOT)) == RUNBOOK
    lost = [f"{where} names {RUNBOOK}#{anchor}" for anchor, where in SAID.anchors.items() if anchor not in known]
    assert not lost, "\n".join(["no such row or heading:", *lost])


def test_no_two_rows_or_headings_have_one_anchor() -> None:
    given = [anchor for row in ROWS for anchor in row.anchors]
    assert len(set(given)) == len(given), sorted(anchor for anchor in set(given) if given.count(anchor) > 1)
    assert not set(given) & anchors(PAGE.read_text())


def test_every_event_and_alert_that_a_row_names_is_one_of_the_code() -> None:
    for row in ROWS:
        for name in {*row.named, *row.anchors}:
            if re.fullmatch(r"[a-z]+(_[a-z]+)+", name):
                known = SAID.events.keys() | KINDS.keys() | OTHERS | set(NAMES)
                assert name in known, f"{PAGE.name}:{row.line}: nothing logs {name}"
            if re.fullmatch(r"Fleet[A-Z]\w+", name):
                assert name in ALERTS, f"{PAGE.name}:{row.line}: there is no alert {name}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: (row.anchors or row.named or [str(row.line)])[0])
def test_a_row_says_what_is_seen_what_it_means_what_mends_itself_what_to_do_and_which_test_proves_it(row: Row) -> None:
    assert len(row.cells) == 5, f"line {row.line} has {len(row.cells)} cells"
    assert all(len(cell) > 3 for cell in row.cells)
    assert row.proofs, f"line {row.line} names no test"
    for proof in row.proofs:
        path, _, test = proof.partition("::")
        assert path.startswith("tests/") and (ROOT / path).exists(), f"line {row.line}: {path} is not there"
        assert not test or test in _tests(path), f"line {row.line}: {path} has no {test}"


def _tests(path: str) -> set[str]:
    return {node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(node, ast.FunctionDef)}


def test_what_else_rows_name_stands_in_the_code() -> None:
    code = "".join(path.read_text() for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    assert all(f'"{name}"' in code for name in OTHERS)


def test_an_event_is_found_whoever_says_it_and_where_a_level_depends() -> None:
    assert SAID.loud.keys() >= {"worker_died", "job_failed", "redis_lost", "beat_pass_broke"}
    assert "redis_back" not in SAID.loud and "redis_back" in SAID.events
    assert "slots_expired" in SAID.events
