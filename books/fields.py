"""The fields of a receipt, as the model must name them: merchant, date, gross, VAT, currency, in exact cents.

The JSON's amounts are decimals, best as strings ("12.34"); numbers are read as `Decimal`, so none passes through a
float. Not guaranteed: that the model is right, only that what it said can be booked: a date that exists, a gross in
whole cents above zero (a refund is a person's work), a VAT that is less than the gross. Anything else raises
`FieldsInvalid`; the answer is then asked for again or shown to a person, not guessed at. The error says which field is
wrong and what shape it has; it holds no text of the answer, which is the receipt's, and goes to logs and to Sentry.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from contextlib import suppress
from decimal import Decimal
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fleet.errors import FleetError

_LARGEST = Decimal(10_000_000_000)  # an amount beyond this is a misread number, and would not fit its column
_AMOUNT = re.compile(r"-?[0-9]{1,11}([.][0-9]{1,6})?")


class FieldsInvalid(FleetError):
    """Raised when the model's answer is not the JSON asked for; names each field and the shape of what was found."""


class ReceiptFields(BaseModel):
    """What a receipt says. Cents are of `currency` (ISO 4217, three capitals); `vat_cents` is None if none is shown."""

    model_config = ConfigDict(frozen=True, extra="ignore", str_strip_whitespace=True)

    merchant: str = Field(min_length=1, max_length=200)
    date: dt.date
    gross_cents: int = Field(alias="gross", gt=0)
    vat_cents: int | None = Field(alias="vat", default=None, ge=0)
    currency: str = Field(pattern=r"^[A-Z]{3}$")

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Validate a model's answer: `{"merchant", "date" (ISO), "gross", "vat", "currency"}`, a code fence allowed.

        Raises `FieldsInvalid`.
        """
        try:
            found = json.loads(_unfenced(text), parse_float=Decimal)
        except (ValueError, ArithmeticError, RecursionError) as error:
            named = [name for name in _NAMES if f'"{name}"' in text]
            raise FieldsInvalid(
                f"The answer is no JSON ({error}): {len(text)} characters that name {', '.join(named) or 'no field'}"
            ) from None
        if not isinstance(found, dict):
            raise FieldsInvalid(f"The answer is a JSON {type(found).__name__}, not an object")
        try:
            return cls.model_validate(found)
        except ValidationError as error:
            raise FieldsInvalid(f"The answer's fields cannot be booked: {_findings(error)}") from None

    @field_validator("gross_cents", "vat_cents", mode="before")
    @classmethod
    def _cents(cls, value: Any) -> int | None:
        match value:
            case None:
                return None
            case Decimal():
                amount = value
            case str() if _AMOUNT.fullmatch(value.strip()):
                amount = Decimal(value.strip())
            case int() if not isinstance(value, bool):
                amount = Decimal(value)
            case _:
                raise ValueError("must be a decimal such as 12.34")
        if not amount.is_finite() or amount.copy_abs() > _LARGEST:
            raise ValueError(f"must be a decimal of at most {_LARGEST}")
        if amount < 0:
            raise ValueError("must not be negative")
        cents = amount * 100
        if cents != cents.to_integral_value():
            raise ValueError("must have no more than two decimals")
        return int(cents)

    @field_validator("date", mode="before")
    @classmethod
    def _iso_date(cls, value: Any) -> dt.date:
        if isinstance(value, str):
            with suppress(ValueError):  # its words quote what was found
                return dt.date.fromisoformat(value.strip())
        raise ValueError("must be a date such as 2026-12-31")

    @field_validator("currency", mode="before")
    @classmethod
    def _capitals(cls, value: Any) -> Any:
        return value.strip().upper() if isinstance(value, str) else value

    @model_validator(mode="after")
    def _vat_is_a_part(self) -> Self:
        if self.vat_cents is not None and self.vat_cents >= self.gross_cents:
            raise ValueError("vat must be less than gross")
        return self


_NAMES = [field.alias or name for name, field in ReceiptFields.model_fields.items()]


def _unfenced(text: str) -> str:
    """The text inside a Markdown code fence, which chat models like to put around JSON."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text[text.index("\n") : -3]
    return text


def _findings(error: ValidationError) -> str:
    """In brackets and not behind a colon, where the log would take them for a merchant's name and remove them."""
    return "; ".join(
        f"{'.'.join(str(part) for part in find['loc']) or 'fields'} ({find['msg']}"
        + ("" if find["type"] == "missing" or not find["loc"] else f", found {_shape(find['input'])}")
        + ")"
        for find in error.errors(include_url=False)
    )


def _shape(value: Any) -> str:
    """What a value is, and not what it says."""
    if isinstance(value, str):
        return f"a text of {len(value)} characters"
    return f"a value of type {type(value).__name__}"
