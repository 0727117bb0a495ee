"""What scrubbing costs a log line: the configured log in JSON, with it and without, turn by turn in one process.

The lines are a job's: what its middleware and its body say, and one in a hundred has a traceback. Ids are fresh in each
line. There is no contender.
"""

from __future__ import annotations

import io
import logging
import statistics
import sys
import threading
import time
import uuid
from typing import Any

import structlog

from fleet import logs
from fleet.log_lines import Scrubbing

_LINES = 5_000  # a round


def report(rounds: int = 5) -> None:
    """Print the medians of `rounds`, and their ratio."""
    root, kept = logging.getLogger(), (sys.excepthook, threading.excepthook)
    handlers, level = root.handlers[:], root.level
    try:
        costs = [(_cost(scrubbing=True), _cost(scrubbing=False)) for _ in range(rounds)]
    finally:
        root.handlers[:], (sys.excepthook, threading.excepthook) = handlers, kept
        root.setLevel(level)
        structlog.reset_defaults()
    scrubbed, plain = (statistics.median(one) for one in zip(*costs, strict=True))
    print(
        f"log lines: {scrubbed:.1f} µs a line scrubbed, {plain:.1f} µs as it is, a ratio of {scrubbed / plain:.2f} "
        f"(JSON, one line in a hundred with a traceback)"
    )


def _cost(*, scrubbing: bool) -> float:
    """Microseconds a line."""
    logs.configure("json", "INFO")
    if not scrubbing:
        processors = structlog.get_config()["processors"]
        instead = structlog.processors.format_exc_info
        structlog.configure(processors=[instead if isinstance(one, Scrubbing) else one for one in processors])
    (handler,) = logging.getLogger().handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(io.StringIO())
    log: Any = structlog.get_logger("books.syncing")
    began = time.perf_counter()
    for number in range(_LINES):
        _say(log, number)
    return (time.perf_counter() - began) / _LINES * 1e6


def _say(log: Any, number: int) -> None:
    about = {"message_id": str(uuid.uuid4()), "actor": "update_transactions", "queue": "transaction_sync"}
    if number % 100 == 0:
        try:
            raise TimeoutError(f"the bank did not answer page {number} of account {number % 17}")
        except TimeoutError as error:
            log.exception("page_not_read", **about, attempt=1, error=repr(error))
    elif number % 2:
        log.info("account_synced", **about, attempt=1, pages=3, stored=number, took="0:00:12.31")
    else:
        log.warning("job_retries", **about, attempt=2, error=f"TimeoutError('no answer within 30 s, page {number}')")
