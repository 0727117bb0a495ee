"""The in-flight board: what each worker thread of one child runs now, in a file that child and supervisor both map.

It takes no lock between processes and asks nothing of the child, so it is readable while the child holds the GIL, is
stopped or is gone. How a slot is written, and why it is never seen half written, stands in `board_slot`.

What a reader may conclude from `read`: the slot was so at one instant, and may have changed since. From `read_stopped`:
it is so until the child goes on, and

- *body*: the body began, or its thread is about to be told whether it may. *ending*: the body is over.
- *prefetched*: the body did not begin; if `retire` was set before the read, it never will.
- *idle*: no body is under way. The thread may have taken a message that it has not yet written here, so what the worker
  holds in Redis and no slot names was not begun here.
- no id and no digest, but a phase: the child spoilt its memory. Some message that no slot names is in that phase.

The pages belong to no process: what was stored before SIGKILL is there. Not guaranteed: anything after the host or its
`/dev/shm` is gone, and that the sentence on `retire` holds on ARM without a stop in between (`board_slot` says why).
"""

from __future__ import annotations

import mmap
import os
import threading
import zlib
from enum import IntEnum
from pathlib import Path
from struct import Struct

from fleet.errors import FleetError
from fleet.workers.board_slot import SLOT_BYTES, Names, Phase, Slot, SlotWriter, copied, decoded

__all__ = ["Board", "BoardUnreadable", "ChildPhase", "Phase", "Slot", "SlotWriter"]

WORKER_BYTES = 64
# A load or store of one of these words through a memoryview is one of the processor's; one by `struct` need not be.
_MAGIC_WORD, _LAYOUT_WORD, _THREADS_WORD = 0, 1, 2
_RETIRE_WORD, _PHASE_WORD, _TURNED_WORD, _JOBS_WORD, _WORKER_WORD, _PULSE_WORD, _HELD_WORD = 8, 16, 17, 18, 19, 20, 21
_WORKER_AT, _HEADER_BYTES = 256, 512
_HEADER = Struct("=QQQ")
_MAGIC, _LAYOUT = int.from_bytes(b"NS-BOARD", "big"), 1
_WORKER = Struct(f"=QB{WORKER_BYTES}s")
_CHECKED_WORKER = Struct(f"={_WORKER.size}sI")
_TRIES = 100


class ChildPhase(IntEnum):
    """How far a child is with its own life."""

    STARTING = 0
    SERVING = 1
    RETIRING = 2
    DRAINED = 3


class BoardUnreadable(FleetError):
    """Raised when a board is opened or read and the file is none, or one of another layout or size, or spoilt."""

    def __init__(self, path: Path, found: str) -> None:
        super().__init__(
            f"The in-flight board {path} cannot be read: found {found}. "
            f"If the code changed under a running supervisor, restart this lane's supervisor; it writes a new board."
        )


class Board:
    """One child's board. The supervisor creates, reads and removes it; the child opens and writes it."""

    def __init__(self, path: Path, memory: mmap.mmap, threads: int) -> None:
        self.path, self.threads, self._memory = path, threads, memory
        self._bytes = memoryview(memory)
        self._words, self._floats = self._bytes.cast("Q"), self._bytes.cast("d")
        self._fence = threading.Lock()
        self._names: dict[tuple[str, str], Names] = {}

    @classmethod
    def create(cls, path: Path, threads: int) -> Board:
        """A new board, all idle, that only this user may open; it needs no more room later.

        `FileExistsError` if there is one, `OSError` where the file system has no room, `ValueError` for no thread.
        """
        if threads < 1:
            raise ValueError(f"a board has at least one thread, not {threads}")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "r+b") as file:
                # Written, not only sized: where room is short it is refused here, and not by SIGBUS at a store.
                file.write(_HEADER.pack(_MAGIC, _LAYOUT, threads).ljust(_size(threads), b"\0"))
                file.flush()
                return cls(path, mmap.mmap(file.fileno(), 0), threads)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    @classmethod
    def open(cls, path: Path) -> Board:
        """The board that the supervisor created. `BoardUnreadable` if it is another, `OSError` if there is none."""
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CLOEXEC), "r+b") as file:
            size, head = os.fstat(file.fileno()).st_size, file.read(_HEADER.size)
            magic, layout, threads = _HEADER.unpack(head.ljust(_HEADER.size, b"\0"))
            if magic != _MAGIC:
                raise BoardUnreadable(path, f"{size} bytes that are no board")
            if layout != _LAYOUT:
                raise BoardUnreadable(path, f"layout {layout}, where this code has layout {_LAYOUT}")
            if size != _size(threads):
                raise BoardUnreadable(path, f"{size} bytes, where {threads} threads have {_size(threads)}")
            return cls(path, mmap.mmap(file.fileno(), 0), threads)

    def close(self) -> None:
        """Unmap it; afterwards it and its writers raise `ValueError`."""
        for view in (self._words, self._floats, self._bytes):
            view.release()
        self._memory.close()

    def remove(self) -> None:
        """Unmap it and delete the file."""
        self.close()
        self.path.unlink(missing_ok=True)

    @property
    def worker_id(self) -> str:
        """The id the child fetches under, "" before it has one; one thread sets it. `ValueError` if over 64 bytes."""
        for _ in range(_TRIES):
            sequence = self._words[_WORKER_WORD]
            if not sequence:
                return ""
            packed, checksum = _CHECKED_WORKER.unpack_from(self._memory, _worker_bank(sequence))
            of, size, raw = _WORKER.unpack(packed)
            if of == sequence and checksum == zlib.crc32(packed):
                return str(raw[:size], "utf-8")
        raise BoardUnreadable(self.path, "a worker id that does not match its checksum")

    @worker_id.setter
    def worker_id(self, value: str) -> None:
        raw = value.encode()
        if len(raw) > WORKER_BYTES:
            raise ValueError(f"the worker id {value!r} has {len(raw)} bytes; a board takes {WORKER_BYTES}")
        sequence = self._words[_WORKER_WORD] + 1
        packed = _WORKER.pack(sequence, len(raw), raw)
        _CHECKED_WORKER.pack_into(self._memory, _worker_bank(sequence), packed, zlib.crc32(packed))
        self._words[_WORKER_WORD] = sequence

    @property
    def retire(self) -> bool:
        """Whether the child shall begin no further body; the supervisor sets it, then reads the slots."""
        return self._words[_RETIRE_WORD] != 0

    @retire.setter
    def retire(self, value: bool) -> None:
        self._words[_RETIRE_WORD] = int(value)
        with self._fence:  # the barrier before the slots are read, see `board_slot`
            pass

    @property
    def turned_at(self) -> float:
        """When the pump last turned, by `clock.monotonic()`; 0.0 if never."""
        return self._floats[_TURNED_WORD]

    @turned_at.setter
    def turned_at(self, value: float) -> None:
        self._floats[_TURNED_WORD] = value

    @property
    def pulse(self) -> float:
        """When the child last took a look at `retire`, by `clock.monotonic()`; it does not while the GIL is held."""
        return self._floats[_PULSE_WORD]

    @pulse.setter
    def pulse(self, value: float) -> None:
        self._floats[_PULSE_WORD] = value

    @property
    def held(self) -> int:
        """How many messages the child held at its last pulse, ends that are not yet written included."""
        return self._words[_HELD_WORD]

    @held.setter
    def held(self, value: int) -> None:
        self._words[_HELD_WORD] = value

    @property
    def jobs(self) -> int:
        """How many jobs ended. One thread sets it: `+=` from several loses some."""
        return self._words[_JOBS_WORD]

    @jobs.setter
    def jobs(self, value: int) -> None:
        self._words[_JOBS_WORD] = value

    @property
    def phase_of_child(self) -> ChildPhase:
        """How far the child is; it sets this itself."""
        return ChildPhase(self._words[_PHASE_WORD])

    @phase_of_child.setter
    def phase_of_child(self, value: ChildPhase) -> None:
        self._words[_PHASE_WORD] = value

    def writer(self, number: int) -> SlotWriter:
        """What the thread of this number writes its slot with; a second writer of it goes on where it stands."""
        return SlotWriter(self._memory, self._words, self._at(number), _RETIRE_WORD, self._names)

    def read(self, number: int) -> Slot | None:
        """The slot at one instant: its generation was the same before and after the copy, and its checksum is right.

        None if that was so at none of 100 tries.
        """
        at = self._at(number)
        for _ in range(_TRIES):
            generation, copy = copied(self._memory, self._words, at)
            if self._words[at // 8] == generation:
                slot = decoded(number, generation, copy)
                if slot is not None:
                    return slot
        return None

    def read_all(self) -> list[Slot]:
        """All slots that could be read, idle ones too; each at an instant of its own."""
        return [slot for number in range(self.threads) if (slot := self.read(number)) is not None]

    def read_stopped(self) -> list[Slot]:
        """Every slot of a child that was *seen* to be stopped or gone: `os.kill` returns before it is."""
        slots = []
        for number in range(self.threads):
            generation, copy = copied(self._memory, self._words, self._at(number))
            slots.append(decoded(number, generation, copy) or Slot(number, Phase(generation & 3)))
        return slots

    def _at(self, number: int) -> int:
        if not 0 <= number < self.threads:
            raise IndexError(f"the board {self.path} has slots 0 to {self.threads - 1}, not {number}")
        return _HEADER_BYTES + number * SLOT_BYTES


def _size(threads: int) -> int:
    return _HEADER_BYTES + threads * SLOT_BYTES


def _worker_bank(sequence: int) -> int:
    return _WORKER_AT + (sequence & 1) * _CHECKED_WORKER.size
