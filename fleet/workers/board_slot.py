"""One slot of the in-flight board: how a thread's message is laid down, and read while it may be written.

A slot has two records and one aligned 8-byte *generation*: `sequence << 2 | phase`. Record `sequence & 1` is the
current one. `begin` writes the other, then stores the generation; a change of phase is that one store alone. So what
the generation names is never half written, and no odd value has to say so: a process that was stopped or killed inside
`begin` left the slot as it was before. A record's checksum covers its sequence, so one that does not belong to the
generation is refused, also where a processor shows stores out of their order.

`body` stores its phase and then reads the retire flag, as the supervisor stores the flag and then reads the phase: at
least one sees the other's. For that each needs a full barrier between its store and its load; an uncontended lock is
one on x86. On ARM a lock is less: there the promise holds only if the child is stopped before it is read.

Not guaranteed: anything when two threads write one slot, or when the process writes over its own memory.
"""

from __future__ import annotations

import math
import mmap
import threading
import zlib
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from fleet import wire

ID_BYTES, QUEUE_BYTES, ACTOR_BYTES = 96, wire.LONGEST_QUEUE_NAME, 96
SLOT_BYTES = 896  # a line for the generation, and two banks of names and record
_DIGEST_BYTES = 16
_NOT_STORED = 255  # in place of a length: an id's digest stands there, a message id is missing
_NAMES = Struct(f"=BB{QUEUE_BYTES}s{ACTOR_BYTES}s")
_RECORD = Struct(f"=QQdddBB{ID_BYTES}s{ID_BYTES}s")  # sequence, delivery, started, soft, hard, two lengths, two ids
_CHECKED = Struct(f"={_RECORD.size}sI")
_FIRST_BANK, _BANK_BYTES = 64, _NAMES.size + _CHECKED.size
_NAMES_REMEMBERED = 1024

_pack, _put, _crc32 = _RECORD.pack, _CHECKED.pack_into, zlib.crc32


class Phase(IntEnum):
    """How far a thread is with a message; *prefetched*: it took it, the body has not begun."""

    IDLE = 0
    PREFETCHED = 1
    BODY = 2
    ENDING = 3


_PREFETCHED, _BODY, _ENDING = int(Phase.PREFETCHED), int(Phase.BODY), int(Phase.ENDING)


@dataclass(frozen=True, slots=True)
class Slot:
    """What a thread works on; an idle one has no id, no digest and no names. Instants are `clock.monotonic()`'s."""

    number: int
    phase: Phase
    delivery: int = 0
    id: str | None = None  # None if longer than ID_BYTES: `digest` tells it
    digest: bytes = b""  # blake2b of 16 bytes over the id's bytes
    queue: str = ""
    actor: str = ""
    message_id: str | None = None
    started: float = 0.0
    soft: float = math.inf
    hard: float = math.inf


class Names(NamedTuple):
    """A queue's and an actor's name as a slot holds them; most jobs of a thread have those of the job before."""

    packed: bytes
    checksum: int


class SlotWriter:
    """Writes one slot, from one thread.

    Where the slot stands it reads from the slot: a raise from outside between two lines spoils nothing, and another
    writer goes on from there.
    """

    def __init__(
        self,
        memory: mmap.mmap,
        words: memoryview[int],
        at: int,
        retire_word: int,
        names: dict[tuple[str, str], Names],
    ) -> None:
        self._memory, self._words, self._word, self._retire_word = memory, words, at // 8, retire_word
        self._banks = (_bank(at, 0), _bank(at, 1))
        self._records = (self._banks[0] + _NAMES.size, self._banks[1] + _NAMES.size)
        self._names = names
        self._written: list[Names | None] = [None, None]  # what each bank has
        self._fence = threading.Lock()

    def begin(
        self,
        *,
        delivery: int,
        id: str,
        queue: str,
        actor: str,
        message_id: str,
        started: float,
        soft: float,
        hard: float,
    ) -> None:
        """The thread took this message: *prefetched*. Instants are `clock.monotonic()`'s, `inf` for none.

        What does not fit is cut or left out, see `Slot`. `UnicodeEncodeError` for an id that no bytes decode to.
        """
        names = self._names.get((queue, actor)) or self._encoded(queue, actor)
        raw = id.encode("utf-8", "surrogateescape")
        size = len(raw)
        if size > ID_BYTES:
            raw, size = _digest(raw), _NOT_STORED
        message, message_size = _message_bytes(message_id)
        sequence = (self._words[self._word] >> 2) + 1
        bank = sequence & 1
        if self._written[bank] is not names:
            self._write_names(bank, names)
        record = _pack(sequence, delivery, started, soft, hard, size, message_size, raw, message)
        _put(self._memory, self._records[bank], record, _crc32(record, names.checksum))
        self._words[self._word] = sequence << 2 | _PREFETCHED

    def body(self) -> bool:
        """The body begins now, unless this returns True: the child retires, and the message is to go back.

        It is *prefetched* again then, so that the death of the process makes it no suspect.
        """
        words, word = self._words, self._word
        generation = words[word] & -4
        words[word] = generation | _BODY
        with self._fence:  # the barrier; `with`, for a raise from outside cannot leave it taken
            pass
        if words[self._retire_word]:
            words[word] = generation | _PREFETCHED
            return True
        return False

    def ending(self) -> None:
        """The body is over; hooks and the message's end follow."""
        self._words[self._word] |= _ENDING

    def clear(self) -> None:
        """The thread holds no message: *idle*."""
        self._words[self._word] &= -4

    def _write_names(self, bank: int, names: Names) -> None:
        self._written[bank] = None
        self._memory[self._banks[bank] : self._records[bank]] = names.packed
        self._written[bank] = names

    def _encoded(self, queue: str, actor: str) -> Names:
        fitting_queue, fitting_actor = _fitting(queue, QUEUE_BYTES), _fitting(actor, ACTOR_BYTES)
        packed = _NAMES.pack(len(fitting_queue), len(fitting_actor), fitting_queue, fitting_actor)
        if len(self._names) >= _NAMES_REMEMBERED:  # anybody can send to any name
            self._names.clear()
        return self._names.setdefault((queue, actor), Names(packed, _crc32(packed)))


def copied(memory: mmap.mmap, words: memoryview[int], at: int) -> tuple[int, bytes]:
    """The generation of the slot at `at`, and a copy of the names and the record that it names."""
    generation = words[at // 8]
    bank = _bank(at, generation >> 2)
    return generation, memory[bank : bank + _BANK_BYTES]


def decoded(number: int, generation: int, copy: bytes) -> Slot | None:
    """The slot that this copy holds; None if it is not this generation's or fails its checksum."""
    if generation & 3 == Phase.IDLE:
        return Slot(number, Phase.IDLE)
    record, checksum = _CHECKED.unpack_from(copy, _NAMES.size)
    sequence, delivery, started, soft, hard, size, message_size, raw, message = _RECORD.unpack(record)
    if sequence != generation >> 2 or checksum != _crc32(record, _crc32(copy[: _NAMES.size])):
        return None
    queue_size, actor_size, queue, actor = _NAMES.unpack_from(copy)
    stored = size != _NOT_STORED
    return Slot(
        number,
        Phase(generation & 3),
        delivery,
        str(raw[:size], "utf-8", "surrogateescape") if stored else None,
        _digest(raw[:size]) if stored else raw[:_DIGEST_BYTES],
        str(queue[:queue_size], "utf-8"),
        str(actor[:actor_size], "utf-8"),
        str(message[:message_size], "utf-8") if message_size != _NOT_STORED else None,
        started,
        soft,
        hard,
    )


def _bank(at: int, sequence: int) -> int:
    return at + _FIRST_BANK + (sequence & 1) * _BANK_BYTES


def _digest(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=_DIGEST_BYTES).digest()


def _message_bytes(message_id: str) -> tuple[bytes, int]:
    try:
        raw = message_id.encode()
    except UnicodeEncodeError:  # it came out of JSON, where anything can stand
        return b"", _NOT_STORED
    return (raw, len(raw)) if len(raw) <= ID_BYTES else (b"", _NOT_STORED)


def _fitting(name: str, most: int) -> bytes:
    raw = name.encode(errors="replace")
    if len(raw) <= most:
        return raw
    mark = "…".encode()
    return raw[: most - len(mark)].decode(errors="ignore").encode() + mark
