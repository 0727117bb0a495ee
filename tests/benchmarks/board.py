"""What the in-flight board costs a job: `begin`, `body`, `ending` and `clear`, as its worker thread calls them.

Stock Dramatiq has no board, so there is no contender; the aim is 2 µs a job. Nothing is started and no server is asked.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
import uuid
from pathlib import Path

from fleet.workers.board import Board

_AIM_MICROSECONDS = 2.0
_JOBS = 50_000
_SHARED_MEMORY = Path("/dev/shm")


def cost(jobs: int = _JOBS) -> float:
    """Microseconds one job's four writes take, each with ids of its own, and of one of two actors at random."""
    names = ("update_transactions_by_bank_account", "categorize_uncategorized_transactions")
    draw = random.Random(4)
    ids = [(str(uuid.uuid4()), str(uuid.uuid4()), draw.choice(names)) for _ in range(jobs)]
    with tempfile.TemporaryDirectory(dir=_SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None) as folder:
        board = Board.create(Path(folder) / "board", threads=8)
        slot = board.writer(3)
        began = time.perf_counter()
        for number, (id, message_id, actor) in enumerate(ids):
            slot.begin(
                delivery=number,
                id=id,
                queue="transaction_sync",
                actor=actor,
                message_id=message_id,
                started=1.0,
                soft=301.0,
                hard=421.0,
            )
            slot.body()
            slot.ending()
            slot.clear()
        took = time.perf_counter() - began
        board.remove()
    return took / jobs * 1e6


def report(rounds: int = 5) -> None:
    """Print the median of `rounds`, lowest and highest beside it."""
    costs = sorted(cost() for _ in range(rounds))
    print(
        f"in-flight board: {statistics.median(costs):.2f} µs a job "
        f"({costs[0]:.2f} to {costs[-1]:.2f}; four writes); aim {_AIM_MICROSECONDS:.0f} µs"
    )
