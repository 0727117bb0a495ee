"""The night's judge of elastic work: what was doubled or held for ever is red, what is left over is said apart."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import func

from books.models import AccountStatus, Attachment, AttachmentStatus, BankAccount, Transaction
from books.night import figures, judge_elastic
from books.night.judge_elastic import ElasticWatch, reversals
from books.night.plan import EVENING, LENGTH, Plan, at
from books.night.report import Line
from books.night.world import World
from books.seeding import Expected
from fleet import app as application
from fleet.clock import Night, clock
from fleet.storage import session
from tests.conftest import ROOT

NOWHERE = Path("/nowhere")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World("", "", "", "", NOWHERE, tmp_path / "model.jsonl", NOWHERE, NOWHERE)


@pytest.fixture
def watch(migrated: object) -> ElasticWatch:
    app = application.load(ROOT)
    with session() as s:
        for model in (Transaction, Attachment):
            s.execute(model.__table__.delete())  # type: ignore[attr-defined]
    return ElasticWatch(app, application.process_broker())


def answered(world: World, *calls: dict[str, Any]) -> None:
    whole = {"status": 200, "fault": None, "step": "category", "latency": 0.0, "real": 0.0}
    world.model_log.write_text("".join(json.dumps({**whole, **call}) + "\n" for call in calls))


def judge(world: World, watch: ElasticWatch, *verdicts: str) -> list[str]:
    plan = Plan(120, 1, NOWHERE)
    app = application.load(ROOT)
    found: list[Line] = list(judge_elastic.judge(app, plan, application.process_broker(), world, watch))
    return [line.claim for line in found if line.verdict in verdicts]


def row(**more: Any) -> None:
    with session() as s:
        account = BankAccount(
            external_id=str(uuid4()), name="n", currency="EUR", customer="c", status=AccountStatus.IDLE
        )
        s.add(account)
        s.flush()
        given = {"booked": True, "booking_date": date(2026, 3, 1), "amount_cents": -1, "currency": "EUR"}
        s.add(Transaction(account_id=account.id, external_id="x", remittance="r", stored_by="m", **given, **more))


def test_a_night_in_which_each_question_was_answered_once_is_green(world: World, watch: ElasticWatch) -> None:
    answered(
        world,
        {"run": "transaction:1"},
        {"run": "transaction:2", "fault": "malformed"},
        {"run": "transaction:2"},
        {"run": "agent_run:7", "step": "1"},
        {"run": "agent_run:7", "step": "1"},
    )
    assert judge(world, watch, "red", "apart") == []


def test_a_question_of_a_row_that_was_answered_twice_is_red(world: World, watch: ElasticWatch) -> None:
    answered(world, {"run": "agent_run:3", "step": "eval"}, {"run": "agent_run:3", "step": "eval"})
    assert judge(world, watch, "red") == ["questions of a row answered twice"]


def test_a_row_that_a_chunk_never_gave_back_is_red_and_one_that_waits_is_said_apart(
    world: World, watch: ElasticWatch
) -> None:
    answered(world)
    row()
    with session() as s:
        s.add(Attachment(customer="c", path="x", status=AttachmentStatus.QUEUED, backlog=True))
    assert judge(world, watch, "apart") == [
        "categorize_uncategorized_transactions: left when the night closed",
        "extract_backlog: left when the night closed",
    ]
    row(sorting_message="m", sorting_until=func.now())
    assert judge(world, watch, "red") == ["rows that a chunk took and never gave back"]


def test_each_backlog_is_counted_once_when_its_deadline_has_come(watch: ElasticWatch) -> None:
    row()
    watch.look(at(6, 14))
    assert watch.at_deadline == {}
    watch.look(at(6, 15))
    watch.look(at(7, 0))
    assert watch.at_deadline == {"categorize_uncategorized_transactions": 1, "extract_backlog": 0, "run_evals": 0}


@pytest.mark.parametrize(
    ("places", "turned"), [([], 0), ([0, 1, 2, 2, 4], 0), ([0, 2, 1, 1, 2], 2), ([4, 2, 1, 0], 0), ([1, 2, 1, 2], 2)]
)
def test_a_reversal_is_a_turn_of_the_allowance_not_a_step(places: list[int], turned: int) -> None:
    assert reversals(places) == turned


def test_a_person_waits_from_sending_to_the_first_question_that_the_model_takes_up(
    world: World, watch: ElasticWatch
) -> None:
    sent = clock.real_now()
    clock.set_night(Night(EVENING, sent - timedelta(seconds=60), LENGTH.total_seconds() / 120))
    real = sent.timestamp()
    answered(
        world,
        {"run": "agent_run:1", "step": "1", "real": real + 0.1, "status": 429},
        {"run": "agent_run:1", "step": "1", "real": real + 0.5, "latency": 60.0},
        {"run": "agent_run:1", "step": "2", "real": real + 9.0, "latency": 1.0},
        {"run": "agent_run:2", "step": "1", "real": real + 0.5, "latency": 6.0},
        {"run": "transaction:2", "real": real + 9.0, "latency": 6.0},
    )
    asked: dict[tuple[str, Any], datetime] = {("submit_approved_run", 1): sent, ("import_csv", 2): sent}
    waits = figures.people_waited(world.model_log, asked)
    assert [(one.run, one.sent, one.seconds) for one in waits] == [
        ("agent_run:1", "04:00:00", pytest.approx(0.5 * 240 - 60.0, abs=0.01))
    ]
    found = figures.of(application.load(ROOT), waits, Expected(), asked, watch)
    assert (found["people"], found["people_wait_p99"]) == (1.0, pytest.approx(0.5 * 240 - 60.0, abs=0.01))


def test_people_are_told_by_how_long_they_waited_the_longest_first(world: World) -> None:
    sent = clock.real_now()
    clock.set_night(Night(EVENING, sent, LENGTH.total_seconds() / 120))
    after = {1: 0.1, 2: 0.4, 3: 0.2}
    asked: dict[tuple[str, Any], datetime] = {
        ("submit_approved_run", run): sent + timedelta(seconds=run) for run in after
    }
    real = sent.timestamp()
    answered(world, *({"run": f"agent_run:{run}", "real": real + run + late} for run, late in after.items()))
    told = [(one.run, one.sent, one.seconds) for one in figures.people_waited(world.model_log, asked)]
    assert told == [
        ("agent_run:2", "00:08:00", pytest.approx(96.0, abs=0.02)),
        ("agent_run:3", "00:12:00", pytest.approx(48.0, abs=0.02)),
        ("agent_run:1", "00:04:00", pytest.approx(24.0, abs=0.02)),
    ]


def test_an_upload_waits_from_sending_to_the_start_of_its_body(world: World, watch: ElasticWatch) -> None:
    sent = clock.real_now()
    clock.set_night(Night(EVENING, sent - timedelta(seconds=60), LENGTH.total_seconds() / 120))
    started = [(1, 0.5), (1, 0.25), (2, 9.0)]  # claims, and how long after it was sent the last of them was
    with session() as s:
        rows = [
            Attachment(customer="c", path="x", status="read", attempts=n, started_at=sent + timedelta(seconds=waited))
            for n, waited in started
        ]
        s.add_all(rows)
        s.flush()
        asked: dict[tuple[str, Any], datetime] = {("extract_data_from_attachment", row.id): sent for row in rows}
    answered(world)
    found = figures.of(application.load(ROOT), [], Expected(), asked, watch)
    assert found["upload_start_p95"] == pytest.approx(0.5 * 240)
