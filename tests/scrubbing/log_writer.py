"""Writes postings into the log in every way that a process has.

`python -m tests.scrubbing.log_writer json|console COUNT`
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from itertools import islice
from typing import Any

from fleet.logs import configure, get_logger
from tests.scrubbing.payloads import Payload, payloads

A_BATCH, SEED = 20, 20_261_131
log = get_logger("books.writer")


def keys(one: Payload) -> None:
    log.info("posting_read", message_id=one.id, **one.values(), text=one.texts[0])


def nested(one: Payload) -> None:
    log.warning("posting_odd", row=one.values(), rows=[one.values(), one.texts[1]], seen=(one.id, {one.mail: 3}))


def told(one: Payload) -> None:
    log.error("posting_failed", error=one.texts[0], reason=one.texts[1], customer=one.name, why=f"asked {one.name}")


def objects(one: Payload) -> None:
    log.info("posting_kept", error=ValueError(one.texts[0]), body=one.texts[1].encode(), total=one.euros, id=one.id)


def escaped(one: Payload) -> None:
    told = repr(ValueError(one.texts[0]))
    log.error("posting_refused", error=told, again=repr(told), sent=json.dumps({"said": [told, *one.texts]}))


def exception(one: Payload) -> None:
    try:
        book(one.company, one.iban, one.cents, one)
    except ValueError as error:
        log.exception("posting_broke", error=repr(error))


def chained(one: Payload) -> None:
    try:
        try:
            book(one.company, one.iban, one.cents, one)
        except ValueError as error:
            row = one.values()
            raise LookupError(f"{row['creditorName']} is not there, message {one.id}") from error
    except LookupError:
        logging.getLogger("books.stock").exception("it broke: %s", one.texts[0])


def stock(one: Payload) -> None:
    logging.getLogger("some.library").warning("it said %s and %r", one.texts[0], one.values())


def printf(one: Payload) -> None:
    logging.getLogger("some.library").error("%(texts)s", {"texts": " | ".join(one.texts)})


def uncaught(one: Payload) -> None:
    thread = threading.Thread(target=book, args=(one.company, one.iban, one.cents, one))
    thread.start()
    thread.join()


def book(counterparty: str, iban: str, amount_cents: int, payload: Payload) -> None:
    raise ValueError(f"message {payload.id}: {counterparty} got {amount_cents / 100:.2f} ({amount_cents}) on {iban}")


WAYS: Any = (keys, nested, told, objects, escaped, exception, chained, stock, printf, uncaught)


def main() -> None:
    """Write them, with a line behind each batch."""
    configure("json" if sys.argv[1] == "json" else "console", "INFO")
    drawn = payloads(int(sys.argv[2]), SEED)
    number = 0
    while batch := list(islice(drawn, A_BATCH)):
        for one in batch:
            WAYS[number % len(WAYS)](one)
            number += 1
        log.info("batch_written")


if __name__ == "__main__":
    main()
