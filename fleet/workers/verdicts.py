"""What a supervisor does in Redis about the messages of its children: condemns one, returns those of a dead child.

A message that is condemned here is a dead letter and fenced: whatever its worker still does with it is stale. If its
actor declared `on_lost`, a message of its own has that run, in another process and after the child is dead; until then
it is delayed, so that it runs even if the supervisor dies first. A Redis that takes no message, as one that is full,
takes a verdict all the same; `on_lost` is then kept here, and sent when `settle` finds that it does. Who queues the
dead letter again meanwhile need take none of these back: whoever runs them asks (`fleet.workers.lost`).

Not guaranteed: `on_lost` for a message that nobody can read; or that is kept here by a process that dies; or of poison,
where the reply to its reaping was lost. Nor a message of its own for each verdict on one that was queued again: while
the first waits it stands for both, and runs when the first child is dead.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dramatiq import Message

from fleet import metrics, wire
from fleet.broker import FleetBroker, keys
from fleet.broker.broker import NotAccepted
from fleet.broker.reaper import Apart, Death, reap
from fleet.check_ins import CheckIns
from fleet.clock import clock
from fleet.logs import brief, get_logger
from fleet.workers.board import Slot
from fleet.workers.reading import of_queue

log = get_logger(__name__)


@dataclass(frozen=True)
class Suspects:
    """How many messages wait to run alone; `one_at_a_time` while nobody knows which takes the others down with it."""

    count: int
    one_at_a_time: bool


class Verdicts:
    """Of the queues of one lane; every call raises what redis-py raises when Redis does not answer."""

    def __init__(self, broker: FleetBroker, queues: Sequence[str]) -> None:
        self._broker, self._queues = broker, queues
        self._untold: dict[tuple[str, str], tuple[bytes, int | None]] = {}  # queue, id -> message, delay
        self._asked: dict[tuple[str, int], str] = {}  # worker, delivery -> details, of verdicts without a reply
        self.check_ins = CheckIns(broker)

    def condemn(self, worker: str, slot: Slot, reason: str, *, lost_after: timedelta) -> tuple[str, str] | None:
        """Make a running message a dead letter; `on_lost` runs after so long, or once `hurry` gets what is returned.

        None if that delivery has ended meanwhile, or nothing is to be told.
        """
        id = slot.id if slot.id is not None else self._by_digest(worker, slot)
        if id is None:
            return None
        ns, queue, client = self._broker.namespace, slot.queue, self._broker.client
        asked = [keys.acks(ns, worker, queue), keys.held(ns, worker, queue), keys.bodies(ns, queue)]
        asked += [keys.dead(ns, queue), keys.dead_bodies(ns, queue), keys.dead_details(ns, queue)]
        asked += [keys.losses(ns, queue), keys.deaths(ns, queue)]
        ran = clock.monotonic() - slot.started
        details = {"reason": reason, "actor": slot.actor, "exception": "-", "traceback": "", "worker": worker}
        details |= {"ran": f"{ran:.1f} s", "died": clock.real_now().isoformat()}
        raw, which = id.encode(errors="surrogateescape"), (worker, slot.delivery)
        # Asked again with the very same details, so that the script knows a verdict whose reply was lost.
        said = self._asked.setdefault(which, json.dumps(details))
        body = self._broker.own_scripts.condemn(keys=asked, args=[raw, slot.delivery, said], client=client)
        del self._asked[which]
        if body is None:
            return None
        told = {"queue": queue, "actor": slot.actor, "message_id": slot.message_id, "ran": details["ran"]}
        metrics.message_lost(queue, "hard_budget")
        log.error("job_lost", **told, reason=reason, dead_letter=True)
        return self._tell(queue, id, body, reason, lost_after)

    def reap(self, worker: str, death: Death | None) -> int:
        """Return what a dead child held; what it died in is set apart, or condemned. How many are suspects now."""
        broker = self._broker
        self._asked = {which: said for which, said in self._asked.items() if which[0] != worker}
        reaped = reap(
            broker.client,
            broker.own_scripts,
            broker.namespace,
            worker,
            self._queues,
            death=death,
            isolating=True,
        )
        for one in reaped.apart:
            if one.verdict:
                self.tell(one)
            elif self.check_ins.on:
                self._say_interrupted(one)
        return sum(not one.verdict for one in reaped.apart)

    def _say_interrupted(self, one: Apart) -> None:
        raw = one.id.encode(errors="surrogateescape")
        body = self._broker.client.hget(keys.bodies(self._broker.namespace, one.queue), raw)
        if isinstance(body, bytes) and (message := self._read(one.queue, one.id, body)) is not None:
            self.check_ins.interrupted(message)

    def tell(self, one: Apart) -> None:
        """Count a dead letter that a reaping made, and have `on_lost` run for it."""
        metrics.message_lost(one.queue, "poison")
        raw = one.id.encode(errors="surrogateescape")
        body = self._broker.client.hget(keys.dead_bodies(self._broker.namespace, one.queue), raw)
        if isinstance(body, bytes):
            self._tell(one.queue, one.id, body, one.verdict, timedelta(0))

    def hurry(self, lost: tuple[str, str]) -> None:
        """Have a delayed `on_lost` run now, since the child is dead."""
        if lost in self._untold:
            self._untold[lost] = self._untold[lost][0], None
            return
        queue, id = lost
        ns = self._broker.namespace
        self._broker.client.zadd(keys.due(ns, queue), {id: 0}, xx=True)
        self._broker.client.publish(keys.wake(ns), queue)

    def suspects(self) -> Suspects:
        """How many messages of the lane wait to run alone, and how; a queue whose list is none any more has none."""
        ns = self._broker.namespace
        with self._broker.client.pipeline(transaction=False) as pipe:
            for queue in self._queues:
                pipe.llen(keys.suspects(ns, queue))
            pipe.exists(*[keys.one_at_a_time(ns, queue) for queue in self._queues])
            answers = pipe.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception) and not str(answer).startswith("WRONGTYPE"):
                raise answer
        *counts, marks = answers
        return Suspects(sum(count for count in counts if isinstance(count, int)), one_at_a_time=marks > 0)

    def _tell(self, queue: str, id: str, body: bytes, reason: str, after: timedelta) -> tuple[str, str] | None:
        message = self._read(queue, id, body)
        if message is None:
            return None
        self.check_ins.send(message, "error")
        actor = self._broker.actors.get(message.actor_name)
        if getattr(actor, "on_lost", None) is None:
            return None
        told = f"{id}{wire.LOST_SUFFIX}"
        lost: Message[object] = Message(
            queue_name=queue,
            actor_name=message.actor_name,
            args=message.args,
            kwargs=message.kwargs,
            options={"redis_message_id": told, wire.LOST: reason},
            message_id=f"{message.message_id}{wire.LOST_SUFFIX}",
        )
        delay = int(wire.duration_ms(after) * clock.rate) if after else None  # the broker takes night time
        try:
            self._broker.accept([(queue, told, lost.encode())], delay)
        except NotAccepted as error:
            log.warning("lost_not_told_yet", queue=queue, id=id, error=str(error))
            self._untold[queue, told] = lost.encode(), delay
        return queue, told

    def settle(self) -> None:
        """Have `on_lost` run that Redis did not take before. Raises `NotAccepted` where it does not yet.

        Called by one thread alone.
        """
        for which in list(self._untold):
            message, delay = self._untold[which]
            self._broker.accept([(*which, message)], delay, pauses=())
            del self._untold[which]

    @staticmethod
    def _read(queue: str, id: str, body: bytes) -> Message[object] | None:
        try:
            message: Message[object] = Message.decode(body)
            return of_queue(message, queue)
        except Exception as error:
            log.warning("lost_message_unreadable", queue=queue, id=id, error=brief(error))
            return None

    def _by_digest(self, worker: str, slot: Slot) -> str | None:
        """The id of a message whose id did not fit on the board."""
        from hashlib import blake2b

        held: Any = self._broker.client.smembers(keys.acks(self._broker.namespace, worker, slot.queue))
        for raw in held:
            if blake2b(raw, digest_size=16).digest() == slot.digest:
                return str(raw.decode(errors="surrogateescape"))
        return None

    def ids(self, worker: str, slots: Sequence[Slot]) -> list[tuple[str, str]]:
        """Queue and id of what stands on a board."""
        found = [(slot.queue, slot.id if slot.id is not None else self._by_digest(worker, slot)) for slot in slots]
        return [(queue, id) for queue, id in found if id is not None]
