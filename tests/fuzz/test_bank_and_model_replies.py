"""Whatever bank, model or gateway answer, the client returns something whole or raises an error with a name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from books.bank import BankClient
from books.bank.answers import Account, Balance, Requisition, TransactionPage
from books.fields import FieldsInvalid, ReceiptFields
from books.gateway import GatewayClient
from books.model import ModelClient
from books.outside.answers import Receipt
from fleet.errors import FleetError
from tests.books.conftest import Answer, ScriptedWorld
from tests.fuzz.changed import changed_bytes, changed_text

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
TAKEN = {"id": "ch_1", "status": "taken", "error": {"code": "card_declined", "message": "no"}}
REFUSAL = {"summary": "Rate limit", "detail": "try again in 20 seconds", "type": "RateLimitError", "status_code": 429}
DATE = "Sunday, 06-Nov-94 08:49:37 GMT"
NEVER = "Mon, 01 Jan 99999999999 00:00:00 GMT"
WAITS = st.sampled_from(["", "0", "-1", "20", "9" * 400, "1e9", NEVER, DATE]) | (
    changed_bytes([DATE.encode()]).map(lambda told: re.sub(r"[^ -~\xa0-\xff]", "", told.decode("latin-1")))
)


def completion(told: tuple[str, str]) -> dict[str, Any]:
    """A chat completion whose answer and whose call's arguments are these."""
    content, arguments = told
    call = {"id": "1", "type": "function", "function": {"name": "balance", "arguments": arguments}}
    message = {"role": "assistant", "content": content, "tool_calls": [call]}
    return {**COMPLETION, "choices": [{**COMPLETION["choices"][0], "message": message}]}


COMPLETIONS = st.tuples(changed_text({"category": "Office"}), changed_text({"of": "bank"})).map(completion)


@st.composite
def replies(draw: st.DrawFn, sound: Any) -> Answer:
    """Often a 200 with a changed body, else any status with any waits in its headers."""
    body = draw(changed_text(sound)).encode()
    if draw(st.booleans()):
        return 200, body
    status = draw(st.sampled_from([201, 302, 400, 401, 402, 403, 404, 408, 409, 422, 429, 429, 429, 500, 503, 599]))
    told = draw(changed_text(draw(st.sampled_from([REFUSAL, {"error": REFUSAL}])))).encode()
    names = ("retry-after", "x-ratelimit-account-success-reset", "http_x_ratelimit_remaining")
    return status, draw(st.sampled_from([body, told])), draw(st.dictionaries(st.sampled_from(names), WAITS))


DEEP = "[" * 20_000
TOO_DEEP = example(answer=(200, DEEP.encode()))
TOO_LATE = example(answer=(429, DEEP.encode(), {"retry-after": NEVER}))


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


@pytest.fixture
def gateway(world: ScriptedWorld) -> Iterator[GatewayClient]:
    made = GatewayClient(world.url, "key", "/v1/charges")
    yield made
    made.close()


@FEW
@TOO_DEEP
@TOO_LATE
@given(answer=replies(PAGE))
def test_a_page_of_transactions_is_whole_or_refused(world: ScriptedWorld, bank: BankClient, answer: Answer) -> None:
    world.reply = lambda *_: answer
    require_pages(bank, answer[1])


def require_pages(bank: BankClient, told: bytes) -> None:
    """What is taken of this answer is what it tells, or it is refused by an error with a name."""
    try:
        (page,) = bank.transactions("a", date(2026, 2, 1), date(2026, 3, 1))
    except FleetError as refused:
        assert str(refused)
        return
    assert isinstance(page, TransactionPage)
    lists = json.loads(told)["transactions"]
    listed = [*lists["booked"], *(lists.get("pending") or [])]
    assert 0 <= len(page.transactions) + page.unidentified <= len(listed)
    amounts = list(told_amounts(listed, "transactionAmount"))
    for row in page.transactions:
        require_money(row.amount_cents, row.currency)
        assert (row.amount_cents, row.currency) in amounts
        assert is_text(row.external_id) and isinstance(row.remittance, str)
        assert type(row.booked) is bool and type(row.booking_date) is date
        assert row.value_date is None or type(row.value_date) is date
        assert row.counterparty is None or is_text(row.counterparty)


def told_amounts(listed: Iterable[Any], name: str) -> Iterator[tuple[Decimal, str]]:
    """Cents and currency of each row that tells them; what is left out of a page need not."""
    for row in listed:
        with suppress(LookupError, TypeError, ValueError, ArithmeticError):
            yield Decimal(row[name]["amount"]) * 100, row[name]["currency"]


def require_money(cents: object, currency: object) -> None:
    assert type(cents) is int and abs(cents) < 10**17
    assert isinstance(currency, str) and re.fullmatch("[A-Z]{3}", currency)


def is_text(found: object) -> bool:
    """Whether somebody could read it."""
    return isinstance(found, str) and bool(found.strip())


@FEW
@TOO_DEEP
@TOO_LATE
@given(answer=replies({**BALANCES, **REQUISITIONS, "id": "a", "institution_id": "b", "status": "READY"}))
def test_balances_accounts_and_requisitions_are_whole_or_refused(
    world: ScriptedWorld, bank: BankClient, answer: Answer
) -> None:
    world.reply = lambda path, query, body: answer if query.get("offset", "0") == "0" else (200, {"results": []})
    for ask in (lambda: bank.balances("a"), lambda: (bank.account("a"),), lambda: tuple(bank.requisitions())):
        try:
            found = ask()  # type: ignore[no-untyped-call]
        except FleetError as refused:
            assert str(refused)
        else:
            require_as_told(found, json.loads(answer[1]))


def require_as_told(found: tuple[object, ...], told: dict[str, Any]) -> None:
    """Each of what was taken is whole, and all of it is what the answer tells."""
    for one in found:
        match one:
            case Balance():
                require_money(one.amount_cents, one.currency)
                assert is_text(one.kind) and (one.reference_date is None or type(one.reference_date) is date)
            case Account():
                assert one.id == told["id"].strip()
                assert is_text(one.id) and is_text(one.institution_id) and is_text(one.status)
                assert all(name is None or is_text(name) for name in (one.iban, one.owner_name))
            case Requisition():
                assert is_text(one.id) and is_text(one.institution_id) and is_text(one.status)
                assert isinstance(one.accounts, tuple) and all(isinstance(account, str) for account in one.accounts)
            case _:
                raise AssertionError(f"{one!r} is nothing of a bank's")
    balances = [(one.amount_cents, one.currency) for one in found if isinstance(one, Balance)]
    assert not balances or balances == list(told_amounts(told["balances"], "balanceAmount"))
    requisitions = [one.id for one in found if isinstance(one, Requisition)]
    assert not requisitions or requisitions == [row["id"].strip() for row in told["results"]]


@FEW
@given(answer=changed_bytes([json.dumps(PAGE).encode(), b"<html>busy</html>"]))
def test_bytes_are_a_whole_page_or_refused(world: ScriptedWorld, bank: BankClient, answer: bytes) -> None:
    world.reply = lambda *_: (200, answer)
    require_pages(bank, answer)


@FEW
@TOO_DEEP
@TOO_LATE
@example(answer=(200, completion((DEEP, DEEP))))
@given(answer=replies(COMPLETION) | COMPLETIONS.map(lambda body: (200, body)))
def test_a_models_answer_is_a_category_that_was_offered_or_refused(
    world: ScriptedWorld, model: ModelClient, answer: Answer
) -> None:
    world.reply = lambda *_: answer
    try:
        found = model.categorize("coffee", -1234, "EUR", ["Office", "Travel"], run="r", step="s")
    except FleetError as refused:
        assert str(refused)
    else:
        assert found in ("Office", "Travel")


@FEW
@TOO_DEEP
@TOO_LATE
@example(answer=(200, completion((DEEP, DEEP))))
@given(answer=replies(COMPLETION) | COMPLETIONS.map(lambda body: (200, body)))
def test_an_agents_turn_calls_tools_that_were_offered_or_is_refused(
    world: ScriptedWorld, model: ModelClient, answer: Answer
) -> None:
    world.reply = lambda *_: answer
    try:
        step = model.step([{"role": "user", "content": "?"}], [TOOL], run="r", step="s")
    except FleetError as refused:
        assert str(refused)
    else:
        assert all(call.name == "balance" and isinstance(call.arguments, dict) for call in step.tool_calls)


@FEW
@TOO_DEEP
@TOO_LATE
@given(answer=replies(TAKEN))
def test_what_a_gateway_says_is_a_receipt_or_an_error_with_a_name(
    world: ScriptedWorld, gateway: GatewayClient, answer: Answer
) -> None:
    world.reply = lambda *_: answer
    for ask in (lambda: gateway.send("k", {"amount": 1}), lambda: gateway.ask("k")):
        try:
            found = ask()  # type: ignore[no-untyped-call]
        except FleetError as refused:
            assert str(refused)
        else:
            assert found is None or (isinstance(found, Receipt) and found.id)


@FEW
@given(answer=changed_text(FIELDS))
def test_a_receipts_fields_can_be_booked_or_are_refused(answer: str) -> None:
    try:
        fields = ReceiptFields.from_json(answer)
    except FieldsInvalid:
        return
    assert fields.gross_cents > 0 and fields.currency.isascii() and fields.merchant
    assert fields.vat_cents is None or 0 <= fields.vat_cents < fields.gross_cents
