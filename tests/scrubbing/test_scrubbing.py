"""What is taken out of a text and what stays in it, by example; values by their keys; events as they are sent."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from fleet import scrubbing
from fleet.known import knowing
from fleet.patterns import LONGEST
from fleet.personal import kind_of, known_from
from fleet.scrubbing import scrub, scrub_event, scrub_sql, scrub_values

GONE = {
    "paid to DE89370400440532013000 and so on": "paid to [iban] and so on",
    "paid to DE89 3704 0044 0532 0130 00 and so on": "paid to [iban] and so on",
    "paid to DE00370400440532013000, whatever its checksum": "paid to [iban], whatever its checksum",
    "gb29nwbk60161331926819": "[iban]",
    "transfer-to-DE89370400440532013000-done-and-more": "transfer-to-[iban]-done-and-more",
    "erika.mustermann@example.de wrote": "[mail] wrote",
    "erika%40example.de wrote": "[mail] wrote",
    "https://user:geheim@bank.example/v1?token=abc&page=2": "https://[credentials]@bank.example/v1?token=[removed]&page=2",
    "redis://:s3cret@10.0.0.1:6379/0": "redis://[credentials]@10.0.0.1:6379/0",
    "Authorization: Bearer abcdef1234567890": "Authorization: [removed]",
    "sent Bearer abcdef1234567890 twice": "sent Bearer [removed] twice",
    "key sk-proj-abcDEF1234567890 used": "key [key] used",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4": "[key]",
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08": "[key]",
    "1.234,56 € and €12.50 and CHF 5 and 12,50 EUR": "[amount] and [amount] and [amount] and [amount]",
    "-1.234,56 or 1'234.56 or 99,95": "[amount] or [amount] or [amount]",
    "amount_cents=123456 queue=books": "amount_cents=[removed] queue=books",
    "{'name': 'Erika', 'iban': 'x', 'rows': 5}": "{'name': [removed], 'iban': [removed], 'rows': 5}",
    '{"creditorName": "Erika M", "page": 1}': '{"creditorName": [removed], "page": 1}',
    "Row(customer='Erika', remittance='Miete 3', tries=3)": "Row(customer=[removed], remittance=[removed], tries=3)",
    "Herr Dr. Max Mustermann hat": "[person] hat",
    "Bäckerei Śliwińska GmbH & Co. KG called": "[company] called",
    "Key (email)=(e@x.de) already exists.": "Key (email)=([removed]) already exists.",
    "Failing row contains (17, Erika, 5).": "Failing row contains [removed]",
    "[SQL: SELECT a FROM t WHERE n = 'Erika' AND c = 99]\n[parameters: ('Erika', 99)]": (
        "[SQL: SELECT a FROM t WHERE n = ? AND c = ?]\n[parameters: [removed]]"
    ),
    "could not convert string to float: 'Erika'": "could not convert string to float: [removed]",
    "[type=int_parsing, input_value='Erika', input_type=str]": (
        "[type=int_parsing, input_value=[removed], input_type=str]"
    ),
    "+49 170 1234567 or 4111 1111 1111 1111": "[number] or [number]",
}
KEPT = [
    "message de893704-0044-4532-8130-00e456426614 ended in 12.5 s of 0:05:00",
    "recover_stuck_syncs@2026-03-02T04:00:00+00:00 processed=571 failed=20 verdict=cut",
    "worker 123e4567-e89b-42d3-a456-426614174000:17 is gone at 2026-03-02 04:00:00.123456+00:00",
    'File "/app/books/syncing.py", line 117, in sync',
    "timed out after 340 of 1772, oldest=1h04m, 1,048,577 bytes, p95 2.41 s, version 3.11.2",
    "Error 111 connecting to 127.0.0.1:6379. Connection refused.",
    "There is no actor named 'categorise'. Did you mean 'categorize'?",
    "poison: killed 2 processes (SIGSEGV), lane-transaction_sync pid=12345 512 MiB",
    "categorize_uncategorized_transactions pk_bank_accounts_customer_idx_and_some_more",
    "token=123e4567-e89b-42d3-a456-426614174000 actor_name=sync queue=transaction_sync",
    "[Errno -2] Name or service not known; HTTP/1.1 429 Too Many Requests",
    "<Transaction object at 0x7f3a2b1c4d5e> at 2026-03-02",
    "relation \"outbox\" does not exist; KeyError: 'page'",
]


@pytest.mark.parametrize("text", GONE)
def test_what_shows_by_its_form_is_taken_out_and_what_is_around_it_stays(text: str) -> None:
    assert scrub(text) == GONE[text]
    assert scrub(GONE[text]) == GONE[text], "a second pass changes nothing"


@pytest.mark.parametrize("text", KEPT)
def test_ids_instants_places_durations_and_counts_stay_readable(text: str) -> None:
    assert scrub(text) == text


def test_the_id_of_every_slots_message_stays_also_where_its_milliseconds_could_be_a_cards_number() -> None:
    for milliseconds in range(1772503800000, 1772503800000 + 24 * 3600 * 1000, 61_000):
        told = f"nightly_audit@{milliseconds} failed, nightly_audit@{milliseconds}-lost too"
        assert scrub(told) == told


def test_a_long_text_is_cut_where_nothing_is_cut_in_half() -> None:
    for at in range(LONGEST - 60, LONGEST + 220, 7):
        text = ("word " * 5_000)[:at] + " DE89 3704 0044 0532 0130 00" + " word" * 100
        assert "DE89" not in scrub(text)
        assert "3704" not in scrub(text)
    assert scrub(text).endswith("[cut]")


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        *[(key, "personal") for key in ("name", "customer_name", "creditorName", "IBAN", "remittanceInformation")],
        ("merchant", "personal"),
        *[("amount_cents", "amount"), ("betrag", "amount"), ("apiKey", "secret"), ("client_secret", "secret")],
        *[(key, None) for key in ("actor_name", "queue", "filename", "rows", "messaging.message.body.size")],
    ],
)
def test_a_key_is_judged_by_its_words(key: str, kind: str | None) -> None:
    assert kind_of(key) == kind


def test_a_value_goes_by_its_key_and_what_is_plain_stays_what_it_is() -> None:
    at, id = datetime(2026, 3, 2, tzinfo=UTC), uuid.uuid4()
    assert scrub_values({"customer": {"id": 5}, "rows": 3, "at": at, "id": id, "took": timedelta(seconds=3)}) == {
        "customer": "[removed]",
        "rows": 3,
        "at": at,
        "id": id,
        "took": timedelta(seconds=3),
    }
    assert scrub_values({"total": Decimal("3.50"), "seen": [{"name": "x"}, "e@x.de"], "e@x.de": 1}) == {
        "total": "[removed]",
        "seen": [{"name": "[removed]"}, "[mail]"],
        "[mail]": 1,
    }


def test_what_a_frame_shows_to_be_personal_is_known_in_every_text_beside_it() -> None:
    def book(row: Any, counterparty: str, amount_cents: int, queue: str) -> None:
        raise ValueError(f"{counterparty} / {row.payee} / {amount_cents / 100:.2f} in {queue}")

    try:
        book(SimpleNamespace(payee="Änne Özdemir"), "Elektro Krautwurst", 123_456, "books")
    except ValueError as error:
        known = knowing(known_from(error))
        assert scrub(str(error), known) == "[removed] / [removed] / [removed] in books"
        assert scrub("asked KRAUTWURST of Özdemir for 1.234,56", known) == "asked [removed] of [removed] for [removed]"


@pytest.mark.parametrize(
    ("statement", "without"),
    [
        ("SELECT * FROM t1 WHERE a = 'O''Hara' AND b = 12.5", "SELECT * FROM t1 WHERE a = ? AND b = ?"),
        ("INSERT INTO t (a, b2) VALUES (%s, $1, :p1, 17)", "INSERT INTO t (a, b2) VALUES (%s, $1, :p1, ?)"),
        ("SELECT $$Erika$$, $a$Max$a$, E'x', 'left open", "SELECT ?, ?, ?, ?"),
    ],
)
def test_a_statement_keeps_its_shape_and_loses_its_literals(statement: str, without: str) -> None:
    assert scrub_sql(statement) == without


def test_an_event_that_cannot_be_scrubbed_says_so_and_little_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("Erika")

    monkeypatch.setattr(scrubbing, "_scrub_texts", broken)
    exception = {"values": [{"type": "ValueError", "value": "Erika"}]}
    event = scrub_event({"event_id": "a", "message": "Erika", "exception": exception, "tags": {"queue": "q"}}, {})
    assert event == {
        "event_id": "a",
        "tags": {"queue": "q"},
        "exception": {"values": [{"type": "ValueError", "value": "[removed]"}]},
        "logentry": {"message": "an event could not be scrubbed: RuntimeError"},
    }
