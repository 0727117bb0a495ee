"""Workers, zombies, janitors and people at one row, in any order: what runs has a lease, and what ended stays as it is.

Each step is a real transaction. After every one, each row's move must be an arrow of docs/states.md; after a janitor's
pass no row runs under a lapsed lease; at the end of each walk the messages that are left run, and then all rows ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from dramatiq import Message
from dramatiq.middleware import Shutdown
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sqlalchemy import delete, func, select, update

import actors.agent_batch
import actors.agent_realtime
import actors.uploads  # noqa: F401  # what the janitor sends to
from books import recovery
from books.leasing import Hold, LeaseLost, lost, take
from books.models import AgentRun, AgentStep, Attachment, AttachmentStatus, RunKind, RunStatus
from fleet import janitor, wire
from fleet.app import process_broker
from fleet.broker import keys
from fleet.storage import session
from tests.architecture.states import drawn

PAGE = drawn()
QUEUES = ("agent_batch", "agent_realtime", "uploads")
MOST_ROWS = 3  # few, so that those who are at work meet at one
Model = type[AgentRun] | type[Attachment]


@dataclass(frozen=True)
class Sort:
    """Rows of one kind: how one is made, and where work takes it."""

    make: Callable[[str], Any] = field(repr=False)
    waits: str
    done: str
    failed: str
    states: str


def _run(kind: RunKind) -> Callable[[str], AgentRun]:
    def make(status: str) -> AgentRun:
        return AgentRun(kind=kind, status=status, idempotency_key=str(uuid4()), customer="c", input={})

    return make


def _document(status: str) -> Attachment:
    return Attachment(customer="c", path="a.png", status=status)


SORTS = (
    Sort(_run(RunKind.PREPARE), RunStatus.QUEUED, RunStatus.PREPARED, RunStatus.FAILED, "RunStatus"),
    Sort(_run(RunKind.SUBMIT), RunStatus.APPROVED, RunStatus.SUBMITTING, RunStatus.FAILED, "RunStatus"),
    Sort(_run(RunKind.EVAL), RunStatus.QUEUED, RunStatus.PASSED, RunStatus.FAILED, "RunStatus"),
    Sort(_document, AttachmentStatus.QUEUED, AttachmentStatus.READ, AttachmentStatus.FAILED, "AttachmentStatus"),
)


@dataclass(frozen=True)
class Row:
    sort: Sort
    model: Model
    id: int


@dataclass(frozen=True)
class Sent:
    """A message that waits."""

    row: Row
    id: str

    def message(self, **options: str) -> Message[Any]:
        return Message("queue", "actor", (self.row.id,), {}, dict(options), message_id=self.id)


@dataclass(frozen=True)
class Working:
    """A delivery that took its row; of a zombie the message was delivered again meanwhile."""

    sent: Sent
    hold: Hold[Any]


class Rows(RuleBasedStateMachine):
    """What is where: `waiting` messages, `working` deliveries, `zombies`, and the rows as they were last seen."""

    def __init__(self) -> None:
        super().__init__()
        with session() as s:
            for model in (AgentStep, AgentRun, Attachment):
                s.execute(delete(model))
        self.rows: dict[tuple[Model, int], Row] = {}
        self.seen: dict[tuple[Model, int], dict[str, Any]] = {}
        self.waiting: list[Sent] = []
        self.working: list[Working] = []
        self.zombies: list[Working] = []

    def _add(self, sort: Sort, status: str) -> Row:
        with session() as s:
            made = sort.make(status)
            s.add(made)
            s.flush()
            row = Row(sort, type(made), made.id)
        self.rows[row.model, row.id] = row
        return row

    @precondition(lambda self: len(self.rows) < MOST_ROWS)
    @rule(sort=st.sampled_from(SORTS))
    def a_person_asks(self, sort: Sort) -> None:
        row = self._add(sort, sort.waits)
        self.waiting.append(Sent(row, str(uuid4())))

    @precondition(lambda self: len(self.rows) < MOST_ROWS)
    @rule(sort=st.sampled_from(SORTS))
    def a_row_is_left_from_before_there_were_leases(self, sort: Sort) -> None:
        self._add(sort, "running")

    @precondition(lambda self: self.rows and len(self.waiting) < MOST_ROWS)
    @rule(data=st.data())
    def a_person_sends_again(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(list(self.rows.values())))
        self.waiting.append(Sent(row, str(uuid4())))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def a_message_is_delivered(self, data: st.DataObject) -> None:
        self._deliver(self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1))))

    def _deliver(self, sent: Sent) -> Working | None:
        row = sent.row
        hold: Hold[Any] | None = take(row.model, row.id, message=sent.id, claimable=(row.sort.waits,))
        if hold is None:
            return None
        self.working.append(Working(sent, hold))
        return self.working[-1]

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def a_worker_stands_still_and_its_message_is_delivered_again(self, data: st.DataObject) -> None:
        one = self._pop(self.working, data)
        self.zombies.append(one)
        self._deliver(one.sent)

    @precondition(lambda self: self.working)
    @rule(data=st.data(), fate=st.sampled_from(["comes again", "expires", "is forgotten"]))
    def a_worker_dies(self, data: st.DataObject, fate: str) -> None:
        one = self._pop(self.working, data)
        if fate == "comes again":
            self.waiting.append(one.sent)
        elif fate == "expires":
            lost(one.sent.row.model, one.sent.message(), "it expired", failed=one.sent.row.sort.failed)

    @precondition(lambda self: self.working)
    @rule(data=st.data(), how=st.sampled_from(["renews", "done", "fails", "drained", "cut off"]))
    def a_worker_acts(self, data: st.DataObject, how: str) -> None:
        one = data.draw(st.sampled_from(self.working))
        self._act(one, how)
        if how != "renews":
            self.working.remove(one)
            if how in ("fails", "drained"):
                self.waiting.append(one.sent)

    @precondition(lambda self: self.zombies)
    @rule(data=st.data(), how=st.sampled_from(["renews", "done", "fails", "drained", "cut off"]))
    def a_zombie_acts(self, data: st.DataObject, how: str) -> None:
        self._act(data.draw(st.sampled_from(self.zombies)), how)

    def _act(self, one: Working, how: str) -> None:
        """What a delivery does to its row; it must succeed if the row is held by it, and change nothing else."""
        row, before = one.sent.row, self._now(one.sent.row)
        holds = before["status"] == "running" and before["lease_token"] == one.hold.token
        try:
            self._write(one, how)
        except LeaseLost:
            assert not holds
        else:
            assert holds or how in ("fails", "drained", "cut off"), "these say nothing when they come too late"
        after = self._now(row)
        if holds:
            ends = {"renews": "running", "done": row.sort.done, "cut off": row.sort.failed}
            assert after["status"] == ends.get(how, row.sort.waits)
        else:
            assert after == before

    def _write(self, one: Working, how: str) -> None:
        row, hold = one.sent.row, one.hold
        if how == "renews":
            with session() as s:
                hold.renew(s)
        elif how == "done":
            hold.finish(row.sort.done, "done")
        elif how == "cut off":
            message = one.sent.message(**{wire.DELIVERY: hold.token})
            lost(row.model, message, "timed out", failed=row.sort.failed)
        else:
            raised: type[BaseException] = OSError if how == "fails" else Shutdown
            try:
                with hold.to_the_end(back_to=row.sort.waits, failed=row.sort.failed):
                    raise raised
            except raised:
                pass

    @rule()
    def time_passes(self) -> None:
        """Leases of the dead lapse, and so do those of zombies; what waits has waited for long."""
        held = [one.hold.token for one in self.working]
        past = func.now() - timedelta(seconds=1)
        with session() as s:
            for model in (AgentRun, Attachment):
                running = (model.status == "running") & model.lease_until.is_not(None)
                s.execute(update(model).where(running, model.lease_token.not_in(held)).values(lease_until=past))
                long_ago = {"queued_at": past - timedelta(hours=2), "finished_at": past - timedelta(hours=2)}
                s.execute(update(model).where(model.status.in_(["queued", "approved"])).values(**long_ago))

    @rule()
    def a_janitor_passes(self) -> None:
        janitor.run("requeue_stuck_runs", recovery.stuck_runs())
        self.waiting += self._taken_from_redis()
        with session() as s:
            for model in (AgentRun, Attachment):
                held = model.lease_until.is_not(None) & (model.lease_until > func.now())
                assert s.scalars(select(model.id).where(model.status == "running", ~held)).all() == []

    def _taken_from_redis(self) -> list[Sent]:
        broker, found = process_broker(), []
        for queue in QUEUES:
            bodies = keys.bodies(broker.namespace, queue)
            for body in broker.client.hvals(bodies):
                message: Message[Any] = Message.decode(body)
                model: Model = Attachment if queue == "uploads" else AgentRun
                found.append(Sent(self.rows[model, message.args[0]], message.message_id))
            broker.client.delete(bodies, keys.queue(broker.namespace, queue))
        return found

    @staticmethod
    def _pop(which: list[Working], data: st.DataObject) -> Working:
        return which.pop(data.draw(st.integers(0, len(which) - 1)))

    def _now(self, row: Row) -> dict[str, Any]:
        with session() as s:
            return dict(s.execute(select(row.model.__table__).where(row.model.id == row.id)).mappings().one())

    @invariant()
    def every_move_is_drawn_and_what_has_ended_stays_as_it_is(self) -> None:
        now_by_key = self._all()
        for key, row in self.rows.items():
            now, before = now_by_key[key], self.seen.get(key)
            self.seen[key] = now
            if before is None or before == now:
                continue
            page = PAGE[row.sort.states]
            assert before["status"] not in page.ends(), f"{key} had ended: {before} became {now}"
            if before["status"] != now["status"]:
                assert (before["status"], now["status"]) in page.arrows
            if now["status"] == "running":
                assert now["lease_until"] is not None and now["lease_token"] and now["lease_message"]
            else:
                assert now["lease_until"] is None

    @staticmethod
    def _all() -> dict[tuple[Model, int], dict[str, Any]]:
        models: tuple[Model, ...] = (AgentRun, Attachment)
        with session() as s:
            return {
                (model, found["id"]): dict(found)
                for model in models
                for found in s.execute(select(model.__table__)).mappings()
            }

    def teardown(self) -> None:
        """Nobody stands still or dies any more: every row ends."""
        for one in self.working:
            self._act(one, "done")
        self.working = []
        for _ in range(recovery.MOST_ATTEMPTS + 2):
            for sent in self.waiting:
                taken = self._deliver(sent)
                if taken is not None:
                    self.every_move_is_drawn_and_what_has_ended_stays_as_it_is()
                    self._act(taken, "done")
            self.waiting, self.working = [], []
            self.time_passes()
            self.a_janitor_passes()
            self.every_move_is_drawn_and_what_has_ended_stays_as_it_is()
            left = [row for key, row in self.rows.items() if self.seen[key]["status"] != "failed"]
            left = [row for row in left if self.seen[row.model, row.id]["status"] != row.sort.done]
            if not left:
                return
            evals = [row for row in left if row.sort.done == RunStatus.PASSED]  # the next evals take them
            self.waiting += [Sent(row, str(uuid4())) for row in evals]
        raise AssertionError(f"these never ended: {[self.seen[row.model, row.id] for row in left]}")


@pytest.mark.parametrize("walks", [15, pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_any_walk_of_workers_zombies_janitors_and_people_keeps_the_rows_true(migrated: object, walks: int) -> None:
    unhurried = settings(
        max_examples=walks,
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],  # a walk is readable as it is; to shorten one takes minutes
    )
    run_state_machine_as_test(Rows, settings=unhurried)
