"""Gives every slot of an entry its verdict, and sends the message of the one that fires.

Redis holds a mark an entry: the last slot that got a verdict. A pass takes the slots from the mark to now; the latest
fires if it is still within the entry's `expires`, older ones are recorded as `coalesced` or `expired`. One script
checks that this replica leads and that the mark is the expected one, and only then sends, moves the mark and writes the
ledger. An entry seen for the first time owes nothing from before.

Not guaranteed yet: that a slot is judged by the server's clock, nor anything about entries edited while the beat runs.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from dramatiq import Message

from beat.leader import Leader
from fleet import metrics, wire
from fleet.actor import FleetActor
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.declarations import Entry
from fleet.logs import get_logger
from fleet.slots import slots_between

log = get_logger(__name__)

_SCRIPT = Path(__file__).parent / "fire.lua"
LEDGER_LENGTH = 100_000

Verdict = Literal["fired", "coalesced", "expired", "new"]


@dataclass(frozen=True)
class LedgerLine:
    """A verdict on the slots from one to another, `count` of them; `new` opens an entry's life and counts none."""

    verdict: Verdict
    first: datetime
    last: datetime
    count: int


class Firer:
    """Passes over entries while this replica leads."""

    def __init__(self, broker: FleetBroker, leader: Leader, schedule: Iterable[Entry]) -> None:
        self._broker, self._leader = broker, leader
        self._entries = {entry.name: entry for entry in schedule}
        self._script = broker.client.register_script(_SCRIPT.read_text())

    def pass_over(self, names: Iterable[str] | None = None) -> None:
        """Bring the given entries, by default all, up to now; does nothing while another replica leads.

        Raises what redis-py raises when Redis does not answer; what was not judged then is judged by the next pass.
        """
        chosen = [self._entries[name] for name in (self._entries if names is None else names)]
        marks = self._broker.client.hmget(keys.marks(self._broker.namespace), [entry.name for entry in chosen])
        for entry, mark in zip(chosen, marks, strict=True):
            if not self._leader.leads():
                return
            self._judge(entry, int(mark) if mark else None)

    def _judge(self, entry: Entry, mark: int | None) -> None:
        now = clock.now()
        if mark is None:
            self._send(entry, mark, [LedgerLine("new", now, now, 0)], None)
            return
        # The mark is rounded down to a millisecond: the slot it stands for may lie after it, and has its verdict.
        slots = [slot for slot in slots_between(entry, wire.from_ms(mark), now) if wire.to_ms(slot) > mark]
        if not slots:
            return
        *older, latest = slots
        lines = _lines("expired", [slot for slot in older if now - slot > entry.expires])
        lines += _lines("coalesced", [slot for slot in older if now - slot <= entry.expires])
        late = now - latest > entry.expires
        lines.append(LedgerLine("expired" if late else "fired", latest, latest, 1))
        self._send(entry, mark, lines, None if late else self._message(entry, latest))

    def _message(self, entry: Entry, slot: datetime) -> Message[None]:
        actor = self._broker.get_actor(entry.actor)
        assert isinstance(actor, FleetActor)
        options: dict[str, Any] = {
            "redis_message_id": str(uuid.uuid4()),
            wire.ENTRY: entry.name,
            wire.SLOT: wire.to_ms(slot),
            wire.EXPIRES_AT: wire.to_ms(slot + entry.expires),
        }
        return actor.message_with_options(**options)

    def _send(self, entry: Entry, mark: int | None, lines: list[LedgerLine], message: Message[None] | None) -> None:
        ns, queue = self._broker.namespace, self._broker.get_actor(entry.actor).queue_name
        if message is not None:
            self._broker.emit_before("enqueue", message, None)
        answer: bytes = self._script(
            keys=[keys.leader(ns), keys.marks(ns), keys.ledger(ns), keys.queue(ns, queue), keys.bodies(ns, queue)],
            args=[
                self._leader.token,
                self._leader.epoch,
                entry.name,
                "" if mark is None else mark,
                wire.to_ms(lines[-1].last),
                message.options["redis_message_id"] if message else "",
                message.encode() if message else "",
                LEDGER_LENGTH,
                keys.wake(ns),
                queue,
                *(arg for line in lines for arg in _wire_line(line)),
            ],
        )
        if answer != b"done":
            log.warning("slots_not_judged", entry=entry.name, reason=answer.decode(), epoch=self._leader.epoch)
            return
        if message is not None:
            self._broker.emit_after("enqueue", message, None)
        for line in lines:
            metrics.slot(entry.name, line.verdict, line.count)
            say = log.warning if line.verdict in ("expired", "coalesced") else log.info
            say(f"slots_{line.verdict}", entry=entry.name, first=str(line.first), last=str(line.last), count=line.count)


def _lines(verdict: Verdict, slots: list[datetime]) -> list[LedgerLine]:
    return [LedgerLine(verdict, slots[0], slots[-1], len(slots))] if slots else []


def _wire_line(line: LedgerLine) -> tuple[str, int, int, int]:
    return line.verdict, wire.to_ms(line.first), wire.to_ms(line.last), line.count
