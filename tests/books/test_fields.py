"""The model's JSON becomes exact cents, or a sentence about what was found instead."""

from __future__ import annotations

import json
from datetime import date

import pytest

from books.fields import FieldsInvalid, ReceiptFields

SOUND = {"merchant": "Bäckerei Jung", "date": "2026-12-31", "gross": "12.34", "vat": "1.97", "currency": "EUR"}


def answer(**changed: object) -> str:
    return json.dumps(SOUND | changed)


def test_a_sound_answer_becomes_cents_and_a_date() -> None:
    fields = ReceiptFields.from_json(answer())
    assert fields.merchant == "Bäckerei Jung"
    assert fields.date == date(2026, 12, 31)
    assert (fields.gross_cents, fields.vat_cents, fields.currency) == (1234, 197, "EUR")


@pytest.mark.parametrize(
    ("written", "cents"),
    [('"12.34"', 1234), ("12.34", 1234), ("12", 1200), ("0.29", 29), ("1.1e2", 11000), ("4.350", 435)],
)
def test_an_amount_is_exact_whether_it_comes_as_a_string_or_as_a_number(written: str, cents: int) -> None:
    text = answer(gross="HERE", vat=None).replace('"HERE"', written)
    assert ReceiptFields.from_json(text).gross_cents == cents


def test_an_amount_that_a_float_cannot_hold_keeps_its_last_cent() -> None:
    text = answer(gross="HERE").replace('"HERE"', "90071992.07")
    assert ReceiptFields.from_json(text).gross_cents == 9007199207


def test_a_receipt_without_vat_has_none() -> None:
    assert ReceiptFields.from_json(answer(vat=None)).vat_cents is None
    without = {name: value for name, value in SOUND.items() if name != "vat"}
    assert ReceiptFields.from_json(json.dumps(without)).vat_cents is None


def test_a_code_fence_around_the_answer_and_a_small_currency_are_forgiven() -> None:
    assert ReceiptFields.from_json(f"```json\n{answer(currency='gbp')}\n```").currency == "GBP"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"gross": "12,34"}, r"gross \(.*such as 12.34, found a text of 5 characters\)"),
        ({"gross": "12.345"}, r"gross \(.*two decimals, found a text of 6 characters\)"),
        ({"gross": True}, r"gross \(.*found a value of type bool\)"),
        ({"gross": "-5.00"}, r"gross \(.*not be negative, found a text of 5 characters\)"),
        ({"gross": float("inf")}, r"gross \(.*found a value of type float\)"),
        ({"gross": "99999999999.00"}, r"gross \(.*at most"),
        ({"vat": "12.34"}, r"fields \(.*vat must be less than gross\)"),
        ({"date": "31.12.2026"}, r"date \(.*such as 2026-12-31, found a text of 10 characters\)"),
        ({"date": 20261231}, r"date \(.*such as 2026-12-31, found a value of type int\)"),
        ({"merchant": "  "}, r"merchant \(.*at least 1 character"),
        ({"currency": "euro"}, r"currency \(.*found a text of 4 characters\)"),
    ],
)
def test_a_field_that_cannot_be_booked_is_named_with_its_shape(changed: dict[str, object], told: str) -> None:
    with pytest.raises(FieldsInvalid, match=told):
        ReceiptFields.from_json(answer(**changed))


def test_every_missing_field_is_named() -> None:
    with pytest.raises(FieldsInvalid, match=r"merchant \(.*date \(.*gross \(.*currency \("):
        ReceiptFields.from_json("{}")


@pytest.mark.parametrize(
    "text", ["", "I am sorry", '{"merchant": "A', "[1, 2]", "null", "[" * 100_000, '{"gross": 1e9999999999999999999}']
)
def test_an_answer_that_is_no_json_object_says_what_it_is_instead(text: str) -> None:
    with pytest.raises(FieldsInvalid, match="The answer"):
        ReceiptFields.from_json(text)


def test_an_answer_that_breaks_off_says_where_how_long_it_is_and_which_fields_it_names() -> None:
    with pytest.raises(FieldsInvalid, match=r"column 39 \(char 38\)\): 39 characters that name merchant, date$"):
        ReceiptFields.from_json('{"merchant": "Bäckerei Jung", "date": "')
