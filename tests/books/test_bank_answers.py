"""How the aggregator's rows are read: which id each gets, amounts in cents, who and what for."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from books.bank import BankAnswerInvalid, BankTransaction, answers
from books.bank.reader import Reader

SUBJECT = "account 7e944232-bda9-40bc-b784-660c7ab5fe78"
DAY = date(2026, 3, 2)


def row(amount: object = "-12.34", **fields: Any) -> dict[str, Any]:
    return {"bookingDate": "2026-03-01", "transactionAmount": {"amount": amount, "currency": "EUR"}, **fields}


def rows(*booked: dict[str, Any], pending: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"transactions": {"booked": list(booked), "pending": list(pending)}, "last_updated": "2026-03-02"}


def read(answer: dict[str, Any]) -> list[BankTransaction]:
    return list(answers.page(answer, SUBJECT, DAY, DAY).transactions)


def test_a_row_keeps_its_id_from_pending_to_booked() -> None:
    answer = rows(pending=({**row(valueDate="2026-02-28", internalTransactionId="abc"), "bookingDate": None},))
    (pending,) = read(answer)
    answer = rows(row(transactionId="T1", internalTransactionId="abc"))
    (booked,) = read(answer)
    assert pending.external_id == booked.external_id == "abc"
    assert (pending.booked, booked.booked) == (False, True)
    assert (pending.booking_date, booked.booking_date) == (date(2026, 2, 28), date(2026, 3, 1))


def test_a_row_listed_as_pending_and_booked_at_once_is_one_booked_row() -> None:
    answer = rows(row(internalTransactionId="abc"), pending=(row(internalTransactionId="abc"),))
    assert [(found.external_id, found.booked) for found in read(answer)] == [("abc", True)]


def test_a_pending_row_that_nothing_ties_to_its_booked_form_is_left_out_and_counted() -> None:
    answer = rows(pending=(row(), row(transactionId="T1"), row(internalTransactionId="abc")))
    page = answers.page(answer, SUBJECT, DAY, DAY)
    assert [found.external_id for found in page.transactions] == ["abc"]
    assert page.unidentified == 2


def test_booked_rows_without_any_id_get_the_same_ids_in_every_answer_and_equal_rows_stay_apart() -> None:
    coffee = row("-3.20", creditorName="Café Jäger")
    answer = rows(coffee, coffee, row("-9.00"))
    first = {found.external_id for found in read(answer)}
    answer = rows(row("-9.00"), coffee, row("-1.00"), coffee)
    second = {found.external_id for found in read(answer)}
    assert len(first) == 3 and first < second and len(second) == 4


def test_a_bank_that_uses_a_transaction_id_again_on_another_day_makes_two_rows() -> None:
    answer = rows(row(transactionId="9998"), row(transactionId="9998", bookingDate="2025-12-01"))
    assert len({found.external_id for found in read(answer)}) == 2


def test_two_different_rows_under_one_id_are_an_error_and_not_a_lost_row() -> None:
    answer = rows(row("1.00", internalTransactionId="abc"), row("2.00", internalTransactionId="abc"))
    with pytest.raises(BankAnswerInvalid, match=r"transaction abc.*two different rows"):
        read(answer)


@given(st.integers(-(10**15) + 1, 10**15 - 1))
def test_every_amount_survives_as_integer_cents(cents: int) -> None:
    text = f"{'-' if cents < 0 else ''}{abs(cents) // 100}.{abs(cents) % 100:02d}"
    assert Reader("account 1").money({"m": {"amount": text, "currency": "EUR"}}, "m") == (cents, "EUR")


@pytest.mark.parametrize(("text", "cents"), [("12", 1200), ("-0.5", -50), ("+0.10", 10), ("-0.00", 0)])
def test_an_amount_may_have_fewer_than_two_decimals(text: str, cents: int) -> None:
    assert Reader("account 1").money({"m": {"amount": text, "currency": "EUR"}}, "m")[0] == cents


@pytest.mark.parametrize("amount", ["12.345", "12.340", "NaN", "1e3", "1,50", "", " 1.00", "١٢.٠٠", 12.34, 5, None])
def test_an_amount_that_is_no_plain_decimal_names_its_transaction_and_shows_no_digits(amount: object) -> None:
    answer = rows(row(amount, internalTransactionId="abc"))
    with pytest.raises(BankAnswerInvalid, match=f"{SUBJECT}, transaction abc: transactionAmount") as caught:
        read(answer)
    assert "12.3" not in str(caught.value)


def test_who_paid_and_what_for_are_found_in_every_field_banks_put_them() -> None:
    ours = {"creditorName": "Wirt", "debtorName": "Kundin"}
    answer = rows(
        row("-1.00", internalTransactionId="1", **ours, remittanceInformationUnstructured="a"),
        row("1.00", internalTransactionId="2", **ours, remittanceInformationUnstructuredArray=["a", "b"]),
        row("1.00", internalTransactionId="3", creditorName=" ", additionalInformation="c"),
    )
    found = [(found.counterparty, found.remittance) for found in read(answer)]
    assert found == [("Wirt", "a"), ("Kundin", "a b"), (None, "c")]
