"""Whatever the bank or the model answers, the client returns something whole or raises an error with a name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from books.bank import BankClient
from books.bank.answers import TransactionPage
from books.fields import FieldsInvalid, ReceiptFields
from books.model import ModelClient
from fleet.errors import FleetError
from tests.books.conftest import ScriptedWorld
from tests.fuzz.changed import changed_bytes, changed_json

FEW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

ROW = {
    "internalTransactionId": "i1",
    "transactionId": "t1",
    "bookingDate": "2026-03-01",
    "valueDate": "2026-03-01",
    "transactionAmount": {"amount": "-12.34", "currency": "EUR"},
    "creditorName": "Kiosk",
    "remittanceInformationUnstructured": "coffee",
    "remittanceInformationUnstructuredArray": ["two", "lines"],
}
PAGE = {"transactions": {"booked": [ROW, {**ROW, "internalTransactionId": None}], "pending": [ROW]}}
BALANCES = {
    "balances": [{"balanceType": "closingBooked", "balanceAmount": {"amount": "1", "currency": "EUR"}, "x": [1]}]
}
REQUISITIONS = {"results": [{"id": "r", "institution_id": "b", "status": "LN", "accounts": ["a", "b"]}], "next": None}
FIELDS = {"merchant": "Kiosk", "date": "2026-03-01", "gross": "12.34", "vat": "1.97", "currency": "EUR"}
TOOL = {"type": "function", "function": {"name": "balance", "parameters": {"type": "object", "properties": {}}}}
COMPLETION: dict[str, Any] = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {
                "role": "assistant",
                "content": json.dumps({"category": "Office"}),
                "tool_calls": [{"id": "1", "type": "function", "function": {"name": "balance", "arguments": "{}"}}],
            },
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
}


@pytest.fixture
def bank(world: ScriptedWorld) -> Iterator[BankClient]:
    made = BankClient(world.url, "id", "key")
    yield made
    made.close()


@pytest.fixture
def model(world: ScriptedWorld) -> Iterator[ModelClient]:
    made = ModelClient(f"{world.url}/v1", "a key", "m")
    yield made
    made.close()


@FEW
@given(answer=changed_json(PAGE))
def test_a_page_of_transactions_is_whole_or_refused(world: ScriptedWorld, bank: BankClient, answer: Any) -> None:
    world.reply = lambda *_: (200, answer)
    try:
        pages = list(bank.transactions("a", date(2026, 2, 1), date(2026, 3, 1)))
    except FleetError as refused:
        assert str(refused)
        return
    for page in pages:
        assert isinstance(page, TransactionPage)
        for row in page.transactions:
            assert isinstance(row.amount_cents, int) and len(row.currency) == 3 and row.external_id


@FEW
@given(answer=changed_json({**BALANCES, **REQUISITIONS, "id": "a", "institution_id": "b", "status": "READY"}))
def test_balances_accounts_and_requisitions_are_whole_or_refused(
    world: ScriptedWorld, bank: BankClient, answer: Any
) -> None:
    world.reply = lambda *_: (200, {**answer, "next": None} if isinstance(answer, dict) else answer)
    for ask in (lambda: bank.balances("a"), lambda: bank.account("a"), lambda: list(bank.requisitions())):
        try:
            ask()  # type: ignore[no-untyped-call]
        except FleetError as refused:
            assert str(refused)


@FEW
@given(answer=changed_bytes([json.dumps(PAGE).encode(), b"<html>busy</html>"]))
def test_bytes_that_are_no_answer_are_refused(world: ScriptedWorld, bank: BankClient, answer: bytes) -> None:
    world.reply = lambda *_: (200, answer)
    try:
        list(bank.transactions("a", date(2026, 2, 1), date(2026, 3, 1)))
    except FleetError as refused:
        assert str(refused)


@FEW
@given(answer=changed_json(COMPLETION))
def test_a_models_answer_is_a_category_that_was_offered_or_refused(
    world: ScriptedWorld, model: ModelClient, answer: Any
) -> None:
    world.reply = lambda *_: (200, answer)
    try:
        found = model.categorize("coffee", -1234, "EUR", ["Office", "Travel"], run="r", step="s")
    except FleetError as refused:
        assert str(refused)
    else:
        assert found in ("Office", "Travel")


@FEW
@given(answer=changed_json(COMPLETION))
def test_an_agents_turn_calls_tools_that_were_offered_or_is_refused(
    world: ScriptedWorld, model: ModelClient, answer: Any
) -> None:
    world.reply = lambda *_: (200, answer)
    try:
        step = model.step([{"role": "user", "content": "?"}], [TOOL], run="r", step="s")
    except FleetError as refused:
        assert str(refused)
    else:
        assert all(call.name == "balance" and isinstance(call.arguments, dict) for call in step.tool_calls)


@FEW
@given(answer=changed_json(FIELDS))
def test_a_receipts_fields_can_be_booked_or_are_refused(answer: Any) -> None:
    try:
        fields = ReceiptFields.from_json(json.dumps(answer))
    except FieldsInvalid:
        return
    assert fields.gross_cents > 0 and fields.currency.isascii() and fields.merchant
    assert fields.vat_cents is None or 0 <= fields.vat_cents < fields.gross_cents
