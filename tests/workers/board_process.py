"""The process that writes a board, what it writes there, and whether what is read there is that."""

from __future__ import annotations

import ctypes
import itertools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

from fleet.workers.board import Board, ChildPhase, Phase, Slot, SlotWriter
from fleet.workers.parent import die_with_parent
from tests.waiting import wait_until

THREADS = 2
ROUNDS = 200_000


def begin(writer: SlotWriter, delivery: int = 1, **changed: str) -> None:
    """A message all of whose fields follow from its delivery number, of lengths that change with it."""
    kind = delivery % 89
    texts = {"id": f"{kind}" * (1 + kind // 2), "queue": "q" * (1 + kind % 64), "actor": "a" * (1 + kind)}
    texts |= {"message_id": f"{kind}-" * (1 + kind // 3)} | changed
    number = float(delivery)
    writer.begin(delivery=delivery, **texts, started=number, soft=number + 0.25, hard=number + 0.5)


def whole(slot: Slot) -> bool:
    """Whether the slot is idle, or every field follows from its delivery number, as `begin` wrote it."""
    if slot.phase is Phase.IDLE:
        return slot == Slot(slot.number, Phase.IDLE)
    kind, number = slot.delivery % 89, float(slot.delivery)
    id = f"{kind}" * (1 + kind // 2)
    texts = (slot.id, slot.queue, slot.actor, slot.message_id)
    return (
        texts == (id, "q" * (1 + kind % 64), "a" * (1 + kind), f"{kind}-" * (1 + kind // 3))
        and slot.digest == blake2b(id.encode(), digest_size=16).digest()
        and (slot.started, slot.soft, slot.hard) == (number, number + 0.25, number + 0.5)
    )


@contextmanager
def running(name: str, board: Board) -> Iterator[subprocess.Popen[bytes]]:
    """A process that does this, from when it serves; killed afterwards."""
    process = subprocess.Popen([sys.executable, "-m", __name__, name, str(board.path)], cwd=Path(__file__).parents[2])
    try:
        wait_until(lambda: board.phase_of_child is ChildPhase.SERVING)
        yield process
    finally:
        process.kill()
        process.wait()


def write_at_full_speed(path: str) -> None:
    """Two threads that write one message after the other, each in its own slot; a third changes the worker's id."""
    board = Board.open(Path(path))
    sys.setswitchinterval(1e-4)

    def work(number: int) -> None:
        writer = board.writer(number)
        for delivery in itertools.count(1):
            begin(writer, delivery)
            writer.body()
            writer.ending()
            if delivery % 2:
                writer.clear()

    def rename() -> None:
        for number in itertools.count(1):
            board.worker_id = f"{number % 10}" * (1 + number % 64)

    threading.Thread(target=rename, daemon=True).start()
    for number in range(1, THREADS):
        threading.Thread(target=work, args=(number,), daemon=True).start()
    board.phase_of_child = ChildPhase.SERVING
    work(0)


def hold_the_gil(path: str) -> None:
    """One thread turns, another hangs in C with the GIL held."""
    board = Board.open(Path(path))

    def turn() -> None:
        for number in itertools.count(1):
            board.turned_at = float(number)
            time.sleep(0.0001)

    threading.Thread(target=turn, daemon=True).start()
    writer = board.writer(0)
    begin(writer, 7)
    writer.body()
    board.phase_of_child = ChildPhase.SERVING
    ctypes.PyDLL(None).sleep(120)


def ask_whether_to_begin(path: str) -> None:
    """In each round: take a message, meet the reader, ask, and say whether the body began."""
    board, reader = Board.open(Path(path)), Board.open(Path(path + "-reader"))
    writer = board.writer(0)
    for number in range(1, ROUNDS + 1):
        begin(writer, number)
        board.jobs, board.phase_of_child = number, ChildPhase.SERVING
        while reader.jobs < number:
            pass
        for _ in range(60):  # room for the reader to come first
            pass
        retired = writer.body()
        board.turned_at = number + (0.5 if retired else 0.25)
        while reader.turned_at < number:
            pass
        writer.clear()


if __name__ == "__main__":
    die_with_parent(signal.SIGKILL)
    globals()[sys.argv[1]](sys.argv[2])
