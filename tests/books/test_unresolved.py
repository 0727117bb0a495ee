"""What was leaving the house when its worker was lost is a chore of a janitor: measured, shown, asked about."""

from __future__ import annotations

import pytest

from books import outside, submitting
from books.models import EffectStatus, RunStatus
from books.outside import Unclear
from fleet import janitor
from tests.books.gateway import SandboxGateway
from tests.books.test_submitting import checked as checked
from tests.books.test_submitting import lapse, now, run


def cut_off(gateway: SandboxGateway, *, ask: list[str]) -> int:
    """A run whose filing the authority has, and whose worker never heard of it."""
    row = run()
    gateway.script(send=["silent"], ask=ask)
    with pytest.raises(Unclear):
        submitting.submit_approved(row, token="m1")
    return row


def test_a_preview_says_what_would_be_asked_and_asks_nothing(checked: SandboxGateway) -> None:
    row = cut_off(checked, ask=["away"])
    lapse(row)
    heard = len(checked.lines())
    seen, found = janitor.preview([outside.Unresolved("janitor")])
    (stuck,) = found
    assert (seen.stuck, stuck.subject) == (1, f"filing of run {row}")
    assert "asked" in stuck.plan
    assert len(checked.lines()) == heard
    assert now(row) == (RunStatus.SUBMITTING, EffectStatus.RUNNING)


def test_a_pass_counts_what_it_found_out_and_leaves_what_is_live(checked: SandboxGateway) -> None:
    lost = cut_off(checked, ask=["away"])
    lapse(lost)
    live = [cut_off(checked, ask=["away"]) for _ in range(2)]
    done = janitor.run("requeue_stuck_runs", [outside.Unresolved("janitor")])
    assert (done.verdict, done.scanned, done.stuck, done.recovered, done.skipped_live) == ("acted", 3, 1, 1, 2)
    assert now(lost) == (RunStatus.SUBMITTED, EffectStatus.DONE)
    assert {now(row) for row in live} == {(RunStatus.SUBMITTING, EffectStatus.RUNNING)}


def test_what_is_parked_for_a_person_is_stuck_no_more(checked: SandboxGateway) -> None:
    row = cut_off(checked, ask=["away", "away"])
    lapse(row)
    done = janitor.run("requeue_stuck_runs", [outside.Unresolved("janitor")])
    assert (done.verdict, done.recovered, done.failed) == ("acted", 1, 0)
    assert now(row) == (RunStatus.NEEDS_REVIEW, EffectStatus.NEEDS_REVIEW)
    assert janitor.run("requeue_stuck_runs", [outside.Unresolved("janitor")]).verdict == "idle"
