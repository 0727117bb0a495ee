"""Whose dead letter was queued again before its `on_lost` ran runs anew, and no `on_lost` ends what it holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from dramatiq import Message
from structlog.testing import capture_logs

from fleet import queue
from fleet.broker import keys
from fleet.broker.broker import NotAccepted
from fleet.broker.dead import Place, discard, requeue
from fleet.broker.reaper import Apart
from fleet.clock import clock
from fleet.workers.board import Slot
from fleet.workers.board_slot import Phase
from fleet.workers.verdicts import Verdicts
from tests.broker.test_broken_queue import broken
from tests.broker.turns import Turns, fetched
from tests.middleware.conftest import QUEUE
from tests.waiting import wait_until

LATER = timedelta(minutes=5)
WORKER = "over-its-budget"


class Cut:
    """A message whose job was cut off: its letter, the supervisor that said so, and what became of it since."""

    def __init__(self, house: Any, lines: list[Any]) -> None:
        self.house, self.verdicts = house, Verdicts(house.broker, [QUEUE])
        self.told: list[str] = []
        self.again: list[str] = []
        self._lines = lines
        job = queue(QUEUE).actor(on_lost=self._lost, name="job")(self._run)
        self.id, broker = job.send().message_id, house.broker
        turns = Turns(broker.client, broker.own_scripts, broker.namespace, WORKER)
        ((raw, _),) = fetched(turns.take(1))
        self.place = Place(QUEUE, raw.decode())
        self._slot = Slot(
            number=0,
            phase=Phase.BODY,
            delivery=int(turns.deliveries[raw]),
            id=self.place.id,
            queue=QUEUE,
            actor="job",
            message_id=self.id,
            started=clock.monotonic(),
        )

    def condemn(self) -> tuple[str, str]:
        """Its delivery is found past its hard budget."""
        lost = self.verdicts.condemn(WORKER, self._slot, "hard budget", lost_after=LATER)
        assert lost == (QUEUE, f"{self.place.id}-lost")
        return lost

    def requeue(self) -> None:
        assert list(requeue(self.house.broker, [self.place], a_second=1_000)) == ["moved"]

    def left_out(self) -> list[str]:
        return [line["message_id"] for line in self._lines if line["event"] == "on_lost_left_out"]

    def _lost(self, message: Message[Any], reason: str) -> None:
        self.told.append(message.message_id)

    def _run(self) -> None:
        wait_until(lambda: self.told or self.left_out(), 20)  # as long a run as it takes
        self.again.append(self.id)


@pytest.fixture
def cut(house: Any) -> Iterator[Cut]:
    with capture_logs() as lines:
        yield Cut(house, lines)
        house.stop()


def delayed(cut: Cut) -> None:
    """Its child lives on for its neighbours."""
    lost = cut.condemn()
    cut.requeue()
    cut.verdicts.hurry(lost)
    cut.house.work()


def kept(cut: Cut) -> None:
    """Redis did not take it at first."""
    with broken(cut.house.broker.client, keys.due(cut.house.broker.namespace, QUEUE)):
        lost = cut.condemn()
        with pytest.raises(NotAccepted):
            cut.verdicts.settle()
    cut.requeue()
    cut.verdicts.hurry(lost)
    cut.verdicts.settle()
    cut.house.work()


def waiting(cut: Cut) -> None:
    """A verdict of poison is told at once."""
    _, told = cut.condemn()
    client, ns = cut.house.broker.client, cut.house.broker.namespace
    client.zrem(keys.due(ns, QUEUE), told)
    client.hdel(keys.bodies(ns, QUEUE), told)
    cut.verdicts.tell(Apart(QUEUE, cut.place.id, "poison: killed 2 processes (SIGKILL, SIGKILL)"))
    cut.requeue()
    cut.house.work()


def fetched_already(cut: Cut) -> None:
    """A worker has it, behind what runs."""
    client, ns = cut.house.broker.client, cut.house.broker.namespace
    lost, gate, begun = cut.condemn(), threading.Event(), threading.Semaphore(0)

    def hold() -> None:
        begun.release()
        gate.wait(20)

    holding = queue(QUEUE).actor(name="hold")(hold)
    for _ in range(2):  # both threads
        holding.send()
    cut.house.work()
    for _ in range(2):
        assert begun.acquire(timeout=20)
    cut.verdicts.hurry(lost)
    acks = keys.acks(ns, cut.house.broker.broker_id, QUEUE)
    wait_until(lambda: client.sismember(acks, lost[1]), 20)
    cut.requeue()
    gate.set()


@pytest.mark.parametrize("where", [delayed, kept, waiting, fetched_already])
def test_an_on_lost_is_left_out_while_its_message_runs_again_wherever_it_waited_itself(
    where: Callable[[Cut], None], cut: Cut
) -> None:
    where(cut)
    cut.house.until_idle()
    assert (cut.told, cut.left_out(), cut.again) == ([], [cut.id], [cut.id])
    assert cut.house.dead() == []


def test_an_on_lost_whose_letter_was_discarded_runs(cut: Cut) -> None:
    lost = cut.condemn()
    assert list(discard(cut.house.broker, [cut.place])) == [1]
    cut.verdicts.hurry(lost)
    cut.house.work()
    cut.house.until_idle()
    assert (cut.told, cut.left_out(), cut.again) == ([cut.id], [], [])
