"""What encrypting a message's arguments costs: encode and decode with a key, beside the same without one.

Nothing is started and no server is asked. Off is the default, and then the bytes are Dramatiq's own.
"""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from fleet.payloads import PayloadEncoder

_MESSAGES = 5_000


def cost(keys: Sequence[str]) -> tuple[float, int]:
    """Microseconds a message, encoded and decoded once, and its bytes."""
    encoder = PayloadEncoder(lambda: keys)
    message: Any = {
        "queue_name": "agent_realtime",
        "actor_name": "submit_approved_run",
        "args": (17, "customer 3"),
        "kwargs": {},
        "options": {},
        "message_id": str(uuid.uuid4()),
        "message_timestamp": 1_772_500_000_000,
    }
    size = len(encoder.encode(message))
    return _microseconds(lambda: encoder.decode(encoder.encode(message))), size


def _microseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    for _ in range(_MESSAGES):
        work()
    return (time.perf_counter() - began) / _MESSAGES * 1e6


def report(rounds: int = 5) -> None:
    """Print the medians of `rounds`, lowest and highest beside each."""
    from cryptography.fernet import Fernet

    keys = [Fernet.generate_key().decode()]
    sealed, plain = zip(*((cost(keys), cost([])) for _ in range(rounds)), strict=True)
    told = [
        f"{statistics.median(took):.1f} µs a message ({min(took):.1f} to {max(took):.1f}) {how}, {sizes[0]} bytes"
        for how, (took, sizes) in (
            ("sealed", tuple(zip(*sealed, strict=True))),
            ("as it is", tuple(zip(*plain, strict=True))),
        )
    ]
    print(f"encryption, encode and decode: {'; '.join(told)}")
