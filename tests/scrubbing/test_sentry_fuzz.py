"""Thousands of postings through the SDK to a server that keeps what arrives: nothing personal does.

Twenty postings an event: in exceptions and their causes, in variables of frames, in breadcrumbs, extras, contexts and
tags, in statements, in spans and in plain messages. That each posting's id arrives shows that it was sent, and that
what is useful can still be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
import sentry_sdk

from fleet import sentry
from fleet.settings import Settings
from tests.middleware.ingest import Ingest
from tests.scrubbing.payloads import Payload, payloads
from tests.scrubbing.search import found_in, missing_from

AN_EVENT, SEED = 20, 20_261_130


@pytest.fixture
def ingest() -> Iterator[Ingest]:
    server = Ingest()
    sentry._state.forget()
    assert sentry.begin(Settings(sentry_dsn=server.dsn, sentry_traces_sample_rate=1.0))
    yield server
    sentry_sdk.get_client().close(timeout=2)
    sentry_sdk.get_global_scope().clear()
    sentry_sdk.get_global_scope().set_client(None)
    sentry._state.forget()
    server.close()


@pytest.mark.parametrize("events", [100, pytest.param(500, marks=pytest.mark.soak)])
def test_of_thousands_of_postings_nothing_personal_arrives_and_every_id_does(ingest: Ingest, events: int) -> None:
    drawn = payloads(events * AN_EVENT, SEED)
    found: list[str] = []
    lost: list[str] = []
    for number in range(events):
        batch = list(islice(drawn, AN_EVENT))
        WAYS[number % len(WAYS)](batch)
        sentry_sdk.flush(10)
        arrived = read(ingest)
        found += found_in(arrived, batch)
        lost += missing_from(arrived, batch)
    assert found == []
    assert lost == []


def read(ingest: Ingest) -> str:
    """All that arrived since the last look, as text in which an umlaut is one."""
    lines = [line for body in ingest.bodies for line in body.split(b"\n") if line]
    ingest.bodies.clear()
    return "\n".join(json.dumps(json.loads(line), ensure_ascii=False) for line in lines)


def report(batch: list[Payload]) -> None:
    """An event with every place filled."""
    with sentry_sdk.isolation_scope() as scope:
        for one in batch[:5]:
            sentry_sdk.add_breadcrumb(category="app", message=one.texts[0], data={**one.values(), "text": one.texts[1]})
            told = repr(ValueError(one.texts[2]))
            sentry_sdk.add_breadcrumb(category="app", message=told, data={"error": repr(told)})
        for one in batch[5:7]:
            statement = f"UPDATE t SET n = '{one.name}', c = {one.cents} WHERE i = '{one.iban}' /* message */"
            sentry_sdk.add_breadcrumb(category="query", message=statement, data={"message": one.id})
        for one in batch[7:9]:
            scope.set_extra(
                f"posting-{one.id}", {"rows": [one.values()], one.mail: one.texts[2], "seen": repr(one.texts)}
            )
            scope.set_context(f"c{one.id}", {"row": one.values(), "said": one.texts[1]})
        scope.set_tag("posting", f"message {batch[9].id} of {batch[9].mail}")
        try:
            settle(batch[10:])
        except LookupError as error:
            sentry_sdk.capture_exception(error)


def settle(batch: list[Payload]) -> None:
    first, second, *others = batch
    row = SimpleNamespace(**first.values())
    ids = [one.id for one in others]
    rows = {one.name: one.texts for one in others}
    notes = [one.texts[0] for one in others]
    told = repr(ValueError("\n".join(notes)))
    try:
        book(second.company, second.iban, second.cents, second)
    except ValueError as error:
        raise LookupError(
            f"nothing for {row.counterparty} ({row.iban}), {row.amount} or {row.amount_cents}; message {first.id}; "
            + "; ".join(notes)
            + f"; {len(ids)} of {len(rows)}; {told}"
        ) from error


def book(counterparty: str, iban: str, amount_cents: int, payload: Payload) -> None:
    raw = {"creditor": payload.values(), "tried": 3}
    raise ValueError(f"message {payload.id}: {counterparty} got {amount_cents / 100:.2f} on {iban}, {len(raw)} tries")


def say(batch: list[Payload]) -> None:
    """Plain messages, and lines of a log."""
    for one in batch[:10]:
        sentry_sdk.capture_message(f"{one.texts[0]} | {ValueError(one.texts[1])!r}")
    for one in batch[10:]:
        line: dict[str, Any] = {"event": f"event_{one.id}", "logger": "fleet.x", **one.values(), "error": one.texts[0]}
        sentry.heard(line, "error")


def trace(batch: list[Payload]) -> None:
    """A transaction whose spans hold statements and values."""
    with sentry_sdk.start_transaction(op="task", name=f"settle {batch[0].id} of {batch[0].mail}"):
        for one in batch:
            statement = f"SELECT * FROM t WHERE n = '{one.name}' AND c = {one.cents} AND i IN ('{one.iban}')"
            with sentry_sdk.start_span(op="db", name=statement) as span:
                span.set_data("messaging.message.id", one.id)
                span.set_data("db.query.text", statement)
                span.set_data("posting", one.values())
            with sentry_sdk.start_span(op="http.client", name=f"POST {one.texts[0]}") as span:
                span.set_data("said", one.texts[1])


WAYS = (report, report, say, trace)
