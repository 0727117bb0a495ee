"""Gives every slot of an entry its verdict, and sends the messages of those that fire.

Redis holds a mark an entry: the last slot that got a verdict. A pass takes the entries that are due, proposes a verdict
for every slot since the mark (`beat.catch_up`), and has one script (`fire.lua`) decide an entry each: whether this
replica leads in this term, knows the stored schedule, and the mark; by the server's time, whether slots expired. It
sends, moves the mark and writes the ledger, or changes nothing, and then the pass begins again with what is there now.

The id of a slot's message is `entry@milliseconds`; what tells two fires of one slot apart is the nonce in it.

Not guaranteed: that a Redis which forgot its last second fires no slot again; the workers' claim on a slot stops the
second run. On failure of one entry (a bad row, a key of another type) it is said once and the others go on; it is tried
again every second.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import redis
from dramatiq import Message

from beat.catch_up import Instant, Proposal, next_due, proposals
from beat.leader import Leader
from beat.now import TAKEN_AS_IT_IS, Now
from beat.revisions import History
from beat.stored import StoredSchedule, Unusable
from fleet import metrics, wire
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.declarations import Entry
from fleet.ledger import LEDGER_LENGTH
from fleet.logs import get_logger

log = get_logger(__name__)

_SCRIPT = Path(__file__).parent / "fire.lua"
EARLY_MOST = timedelta(seconds=2)  # real: a slot that lies further ahead of the server's time is refused
_CHUNK = 100  # entries a round trip
_LOOK_HOLDS = 2.0  # seconds for which a ring makes do with the last look
_AGAIN = timedelta(seconds=1)  # real, after an entry failed
_AHEAD = timedelta(seconds=1.5)  # real: what is due by then is made ready, so that at its instant it is only sent
_READY_MOST = 5_000
_LONGEST_OUTAGE = timedelta(days=3 * 365)
_ROUNDS = 3


@dataclass(frozen=True)
class Call:
    """One run of the script: the slots of an entry, what is proposed for each line, and the messages by line."""

    history: History
    lines: list[Proposal]
    messages: list[Message[Any] | None]
    keys: list[str]
    args: list[Any]


@dataclass(frozen=True)
class Ready:
    """A call that was made before its slot was due; it holds for a term and a mark, until the slot after is due."""

    term: tuple[int, int]
    mark: int
    call: Call
    until: datetime | None

    def holds(self, term: tuple[int, int], mark: int, at: Instant) -> bool:
        """Whether it is still what would be made now."""
        return (self.term, self.mark) == (term, mark) and (self.until is None or at.due < self.until)


class Firer:
    """Passes over entries while this replica leads."""

    def __init__(self, broker: FleetBroker, leader: Leader, schedule: Iterable[Entry], now: Now) -> None:
        self._broker, self._leader, self._now = broker, leader, now
        self._stored = StoredSchedule(broker, schedule, leader.token, now)
        self._text = _SCRIPT.read_text()
        self._sha: str | None = None
        self._loaded: tuple[int, int] | None = None  # the generation and the term for which the schedule was read
        self._failing: dict[str, str] = {}
        self._ready: dict[str, Ready] = {}

    def register(self) -> None:
        """Make this process's schedule the stored one, as the process which started last; the first pass does it too.

        Raises what Dramatiq raises where an entry's actor is not there, and redis-py when Redis does not answer.
        """
        self._stored.register()

    def pass_over(self, names: Iterable[str] | None = None) -> None:
        """Bring every entry that is due up to now; fires nothing while another leads or the server's clock is doubted.

        `names` are entries that rang: such a pass asks Redis nothing when nothing is due. An ordinary one looks first
        what time it is there and whether the schedule changed, and is to be made every second, leading or not.

        Raises what redis-py raises when Redis does not answer; what was not judged then is judged by the next pass.
        """
        if names is None or not self._stored.looked_within(_LOOK_HOLDS):
            self._stored.look()
        for _ in range(_ROUNDS):
            if not self._leader.leads() or self._now.doubt is not None:
                return
            if not self._overtaken():
                break
            self._stored.look()
        if names is None:
            self._make_ready()

    def _overtaken(self) -> bool:
        """Fire what is due; whether something was found to be otherwise than known, so that it must be looked again."""
        stored, term = self._stored, (self._stored.generation, self._leader.epoch)
        if self._loaded != term or stored.stale:
            stored.load()
            self._loaded = term
        at = stored.instant()
        done: list[tuple[Call, list[str]]] = []
        due = iter(stored.take_due(at.due))
        try:
            while chunk := list(islice(due, _CHUNK)):
                if not self._leader.leads():
                    self._loaded = None
                    return False
                done += self._sent(list(self._calls(chunk, at, term)), at)
        except BaseException:
            self._loaded = None  # what was sent is not known
            raise
        finally:
            for call, answer in done:
                self._stored.reckon(call.history.name)
                self._say(call, answer)
        return self._loaded is None

    def _calls(self, names: Iterable[str], at: Instant, term: tuple[int, int]) -> Iterator[Call]:
        for name in names:
            ready = self._ready.pop(name, None)
            if ready and ready.holds(term, self._stored.marks[name], at):
                yield ready.call
                continue
            try:
                call = self._call(name, at, term)
            except Exception as error:  # whatever one entry raises is its own: the others go on
                self._failed(name, error, at)
            else:
                if call is None:
                    self._stored.reckon(name)
                else:
                    yield call

    def _make_ready(self) -> None:
        """Make the calls of what is due before long: a thousand at once are then late by their sending alone."""
        at, term = self._stored.instant(), self._loaded
        before, self._ready = self._ready, {}
        if term is None:
            return
        for name, due in self._stored.due_until(at.due + _AHEAD * clock.rate)[:_READY_MOST]:
            if name in before and before[name].holds(term, self._stored.marks[name], at):
                self._ready[name] = before[name]
                continue
            try:
                call = self._call(name, Instant(at.now, due, at.rate), term)
                if call is not None:
                    until = next_due(call.history, call.lines[-1].last)
                    self._ready[name] = Ready(term, self._stored.marks[name], call, until)
            except Exception as error:  # it is made again when it is due, and said then
                log.debug("entry_not_ready", entry=name, error=repr(error))

    def _call(self, name: str, at: Instant, term: tuple[int, int]) -> Call | None:
        history, mark = self._stored.histories[name], self._stored.marks[name]
        # A process that starts believes the first time it hears; a mark that has followed a wrong one stays there.
        if at.now - wire.from_ms(mark) > _LONGEST_OUTAGE:
            raise ValueError(
                f"the server says {at.now:%Y-%m-%d}, but its last slot was judged in {wire.from_ms(mark):%Y}"
            )
        lines = proposals(history, wire.from_ms(mark), at)
        if not lines:
            return None
        ns, queue, entry = self._broker.namespace, history.living.queue, history.living.entry
        assert entry is not None
        messages = [self._message(history, line) if line.verdict == "fired" else None for line in lines]
        return Call(
            history,
            lines,
            messages,
            keys=[
                *(keys.leader(ns), keys.epoch(ns), keys.schedule(ns), keys.marks(ns), keys.paused(ns), keys.runs(ns)),
                *(keys.runs_by_hand(ns), keys.ledger(ns, name), keys.queue(ns, queue), keys.bodies(ns, queue)),
                keys.awaited(ns),
            ],
            args=[
                *(self._leader.token, term[1], term[0], name, mark, *self._stored.night()),
                *(wire.duration_ms(EARLY_MOST), int(TAKEN_AS_IT_IS * 1000)),
                *(entry.overlap, LEDGER_LENGTH, keys.wake(ns), queue),
                *(word for pair in zip(lines, messages, strict=True) for word in _wire_line(*pair)),
            ],
        )

    def _message(self, history: History, line: Proposal) -> Message[Any]:
        living, slot = history.living, line.last
        assert living.entry is not None
        assert line.revision.entry is not None
        message_id = f"{history.name}@{wire.to_ms(slot)}"
        options = {
            "redis_message_id": message_id,
            wire.ENTRY: history.name,
            wire.SLOT: wire.to_ms(slot),
            wire.NONCE: uuid.uuid4().hex,
            wire.EXPIRES_AT: wire.to_ms(slot + line.revision.entry.expires),
        }
        sent = wire.to_ms(clock.to_real_instant(slot))  # so that the age limits of stock count from the slot too
        message: Message[Any] = Message(living.queue, living.entry.actor, (), {}, options, message_id, sent)
        self._broker.emit_before("enqueue", message, None)
        return message

    def _sent(self, calls: list[Call], at: Instant) -> list[tuple[Call, list[str]]]:
        """Run the script for each; those that were done, with the verdicts."""
        done = []
        for call, answer in zip(calls, self._run(calls), strict=True):
            name = call.history.name
            if isinstance(answer, Unusable):
                raise answer
            if isinstance(answer, Exception):
                self._failed(name, answer, at)
                continue
            word, *verdicts = (part.decode() for part in answer)
            if word == "done":
                self._failing.pop(name, None)
                self._stored.judged += 1
                self._stored.marks[name] = wire.to_ms(call.lines[-1].last)
                done.append((call, verdicts))
            elif word == "early":
                self._failed(name, ValueError("the server's clock says that it is too early"), at)
            else:
                self._loaded = None
                log.warning("slots_not_judged", entry=name, reason=word, epoch=self._leader.epoch)
        return done

    def _run(self, calls: list[Call]) -> list[Any]:
        """Run the script for each in one round trip; an answer each, or the error."""
        if not calls:
            return []
        if self._sha is None:
            self._sha = self._broker.client.script_load(self._text)
        with self._broker.client.pipeline(transaction=False) as pipe:
            for call in calls:
                pipe.evalsha(self._sha, len(call.keys), *call.keys, *call.args)
            answers = pipe.execute(raise_on_error=False)
        if any(isinstance(answer, redis.exceptions.NoScriptError) for answer in answers):
            # A Redis that was started again: none of them ran, or those that did would say so.
            self._sha = None
            return self._run(calls)
        return answers

    def _failed(self, name: str, error: Exception, at: Instant) -> None:
        if self._failing.get(name) != str(error):
            self._failing[name] = str(error)
            log.error("entry_not_judged", entry=name, error=repr(error))
        try:
            self._stored.reckon(name, no_sooner=at.due + _AGAIN * clock.rate)
        except Exception as unreckoned:
            log.error("entry_not_reckoned", entry=name, error=repr(unreckoned))

    def _say(self, call: Call, verdicts: list[str]) -> None:
        name = call.history.name
        for line, message, verdict in zip(call.lines, call.messages, verdicts, strict=True):
            if verdict == "fired" and message is not None:
                self._broker.emit_after("enqueue", message, None)
            metrics.slot(name, verdict, line.count)
            say = log.info if verdict in ("fired", "paused") else log.warning
            say(f"slots_{verdict}", entry=name, first=str(line.first), last=str(line.last), count=line.count)


def _wire_line(line: Proposal, message: Message[Any] | None) -> tuple[Any, ...]:
    return (
        *(line.verdict, wire.to_ms(line.first), wire.to_ms(line.last), line.count, line.revision.number),
        *(wire.to_ms(line.due), wire.to_ms(line.expires)),
        *(("", "") if message is None else (message.options["redis_message_id"], message.encode())),
    )
