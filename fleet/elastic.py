"""The chunks of an elastic entry: how its work goes on while the allowance lets it.

An entry's actor calls `chunk(work)`. Its messages are of three kinds:

    of a chain   has a number; does one chunk if that is below the allowance (`fleet.allowance`), and goes on if more is
                 left and it still is; unless another was begun in its place (`superseded`)
    of a slot    the entry's cron minute: does no chunk, and begins the chains that are allowed (`fleet.chains`); where
                 nobody decides it is what starts the night's work, as it did before there was a balancer
    any other    sent by a person (`fleet fire`) or by code: does one chunk, whatever is allowed, and begins chains

A chain goes on by the very step that ends its chunk: the message is stored anew under its own id, due at once, behind
what waits in its queue. So a worker that is killed before that step runs the chunk again, and one that is killed after
it has lost and doubled nothing: there is one message a chain at every instant. A chunk that is not allowed ends, and is
sent by nobody until its number is allowed again; nothing that runs is cut off, and nothing asks in a loop.

Not guaranteed: that a chunk's rows are worked on once; a message may be delivered twice, so it must be harmless to run
twice. A chain whose chunk fails for good ends as any dead letter does, and another is seeded in its place; the letter,
queued again, ends at once. A stock worker does one chunk a seed. Outside a worker all that is left is done, chunk after
chunk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import redis
from dramatiq import Message

from fleet import deadline, wire
from fleet.actor import current_message
from fleet.allowance import Allowance, allowance, ask, read
from fleet.broker import FleetBroker, keys
from fleet.broker.ends import current
from fleet.broker.sealing import id_and_bytes
from fleet.chains import seed
from fleet.clock import clock
from fleet.declarations import Entry
from fleet.logs import get_logger
from fleet.window import elastic_of, window

log = get_logger(__name__)

_SCHEDSTAT = Path("/proc/thread-self/schedstat")  # ns on a core, ns ready and waiting for one, times on one
_OF_A_CALL = 100  # rows, outside a worker
_LOST = "another delivery of its message has its row, and goes on"
_MEASURED_FOR = 86_400  # seconds that an entry's measures stand behind its last chunk


class Did(NamedTuple):
    """What a chunk did that may have ended before its size: whether more is left, and how many rows; true if more.

    `early` if it ended with rows left since nobody answers for them, and more chains would not help; `lost` if it ended
    since another delivery of its message has its row, and goes on. Of both `more` is false.
    """

    more: bool
    rows: int
    early: bool = False
    lost: bool = False

    def __bool__(self) -> bool:
        return self.more


def chunk(work: Callable[[int], bool | Did], *, give_back: Callable[[], object] | None = None) -> None:
    """Do one chunk of an elastic entry's work, if its allowance says so; called by the body of the entry's actor.

    `work(size)` does up to `size` rows and returns whether more is left (with `Did` also how many it did, where that
    may be fewer, and whether it ended early); a chunk that found nothing to do returns False. `give_back` is called
    where a chain's chunk is not allowed to begin: an attempt of its message before, or a delivery that was lost, may
    have left rows taken. Raises what either raises.
    """
    message, found = current_message(), _entry()
    if message is not None and wire.CHAIN in message.options and _left_over(message, found):
        log.warning("chain_left_over", entry=message.options.get(wire.ENTRY), chain=message.options[wire.CHAIN])
        return
    if message is None or found is None:
        while _did(work, _OF_A_CALL if found is None else elastic_of(found[1]).chunk).more:
            deadline.check()
        return
    broker, entry = found
    number = message.options.get(wire.CHAIN)
    if isinstance(number, int):
        if _may(entry, message, number, _asked(broker, entry, number)):
            _of_chain(broker, entry, message, number, work)
        elif give_back is not None:
            give_back()
        return
    if wire.SLOT in message.options or _measured(broker, entry, work)[0]:
        granted = allowance(broker, entry, clock.now())
        began = seed(broker, entry, granted.places)
        log.info("chains_began", entry=entry.name, count=began, allowed=granted.places, reason=granted.reason)


def _left_over(message: Message[None], found: tuple[FleetBroker, Entry] | None) -> bool:
    """Whether a chain's entry has another name now, or is elastic no more: then whatever it is now takes its rows."""
    return found is None or found[1].name != message.options.get(wire.ENTRY)


def _did(work: Callable[[int], bool | Did], size: int) -> Did:
    did = work(size)
    return did if isinstance(did, Did) else Did(did, size if did else 0)


def _entry() -> tuple[FleetBroker, Entry] | None:
    """The elastic entry that this thread's message is of."""
    from fleet.app import process_broker

    message = current_message()
    if message is None:
        return None
    broker = process_broker()
    name = message.options.get(wire.ENTRY)
    known = [entry for entry in broker.entries.values() if entry.elastic and entry.actor == message.actor_name]
    named = next((entry for entry in known if entry.name == name), known[0] if known else None)
    return None if named is None else (broker, named)


class _Told(NamedTuple):
    """What an entry is allowed, and the id of the last message that was seeded for the chain; None if unknown."""

    granted: Allowance
    last: bytes | None


def _of_chain(
    broker: FleetBroker, entry: Entry, message: Message[None], number: int, work: Callable[[int], bool | Did]
) -> None:
    did, told = _measured(broker, entry, work, number)
    if not did.more:
        why = "its chunk ended early" if did.early else _LOST if did.lost else "nothing left"
        log.info("chain_ended", entry=entry.name, chain=number, reason=why)
    elif _may(entry, message, number, told):
        _go_on(broker, entry, message)


def _may(entry: Entry, message: Message[None], number: int, told: _Told) -> bool:
    """Whether a chain's message does a chunk, or goes on; says why it does not.

    One in whose place another was begun (it was a dead letter, and somebody queued it again) would double the chain for
    the rest of the night. Nobody can be begun in its place while it is the last and its body stands (`fleet.chains`).
    Where the last is forgotten it goes on; the next seed is another's, and then it ends.
    """
    granted, last = told
    if last is not None and last.decode(errors="replace") != message.options.get("redis_message_id"):
        log.info("chain_ended", entry=entry.name, chain=number, reason="superseded", by=last.decode(errors="replace"))
        return False
    if not 0 <= number < granted.places:
        log.info("chain_ended", entry=entry.name, chain=number, reason=granted.reason, allowed=granted.places)
        return False
    return True


def _go_on(broker: FleetBroker, entry: Entry, message: Message[None]) -> None:
    """Have the end of this thread's message store it anew, due at once."""
    if current.settling is None:
        return
    now = clock.now()
    kept = (wire.ENTRY, wire.CHAIN, wire.GENERATION, "redis_message_id")
    options = {name: message.options[name] for name in kept if name in message.options}
    options[wire.EXPIRES_AT] = wire.to_ms(window(entry, now).closes)
    # It waits from now on: an age that counted from the seed would be that of the whole night.
    sent = wire.to_ms(clock.real_now())
    again: Message[None] = Message(
        message.queue_name, message.actor_name, message.args, message.kwargs, options, message.message_id, sent
    )
    broker.emit_before("enqueue", again, None)
    current.settling.goes_on = id_and_bytes(again)[1]


def _measured(
    broker: FleetBroker, entry: Entry, work: Callable[[int], bool | Did], number: int = 0
) -> tuple[Did, _Told]:
    """Do a chunk; what it did, and what is allowed behind it.

    For the balancer a full one is measured, and one that ended early is counted: what its rows cost is not theirs.
    """
    size = elastic_of(entry).chunk
    began, cpu, waited = clock.monotonic(), time.thread_time(), _waited_for_a_core()
    did = _did(work, size)
    if did.more:
        waited, cpu, wall = _waited_for_a_core() - waited, time.thread_time() - cpu, clock.monotonic() - began
        waited = min(max(0.0, waited), max(0.0, wall - cpu))  # nothing told it at one of the two ends
        took = {"chunks": 1, "rows": did.rows}
        took |= {"wall_us": int(wall * 1e6), "cpu_us": int(cpu * 1e6), "waited_us": int(waited * 1e6)}
    elif did.early:
        took = {"early": 1}
    else:
        return did, _Told(Allowance(0, "calm", None, fallback=False), None)
    return did, _asked(broker, entry, number, took)


def _waited_for_a_core() -> float:
    """Seconds that this thread was ready to run and did not, as Linux tells; 0 where nothing tells it."""
    try:
        return int(_SCHEDSTAT.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _asked(broker: FleetBroker, entry: Entry, number: int, took: Mapping[str, int] | None = None) -> _Told:
    """What stands of an entry and of one of its chains, in one round trip that also counts what a chunk took."""
    ns = broker.namespace
    lease = held = pause = last = None
    try:
        with broker.client.pipeline(transaction=False) as pipe:
            for name, value in (took or {}).items():
                pipe.hincrby(keys.measures(ns, entry.name), name, value)
            if took:
                pipe.expire(keys.measures(ns, entry.name), _MEASURED_FOR)
            ask(pipe, ns, [entry])
            pipe.hget(keys.chains(ns, entry.name), str(number))
            (lease, held), (pause,), last = pipe.execute()[-3:]
    except redis.RedisError as error:
        log.warning("allowance_unread", entry=entry.name, error=str(error))
    return _Told(read(entry, clock.now(), lease, held, pause), last)
