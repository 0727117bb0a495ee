"""The JSON of requisitions, accounts and balances, field by field as the public API sends them."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

from books.sandbox.bank.connections import Connection, SeededAccount
from books.sandbox.bank.ledger import decimal_text
from books.sandbox.bank.refused import CONSENT_DAYS


def requisition_body(connection: Connection, origin: date, expired: bool) -> dict[str, Any]:
    """One of `results` in `GET requisitions/`."""
    return {
        "id": connection.requisition_id,
        "created": _created(origin, expired),
        "redirect": "https://books.example/connected",
        "status": "EX" if expired else "LN",
        "institution_id": connection.institution,
        "agreement": connection.requisition_id,
        "reference": connection.requisition_id,
        "accounts": [account.id for account in connection.accounts],
        "user_language": "DE",
        "link": f"https://bank.example/psd2/start/{connection.requisition_id}/{connection.institution}",
        "ssn": None,
        "account_selection": False,
        "redirect_immediate": False,
    }


def account_body(account: SeededAccount, institution: str, origin: date, expired: bool) -> bytes:
    """`GET accounts/{id}/`."""
    body = {
        "id": account.id,
        "created": _created(origin, expired),
        "last_accessed": f"{origin}T00:00:00Z",
        "iban": account.iban,
        "status": "EXPIRED" if expired else "READY",
        "institution_id": institution,
        "owner_name": account.name,
        "name": "Geschäftskonto",
    }
    return json.dumps(body, ensure_ascii=False).encode()


def balances_body(booked_cents: int, expected_cents: int, currency: str, day: date) -> bytes:
    """`GET accounts/{id}/balances/`."""
    rows = [
        {
            "balanceAmount": {"amount": decimal_text(cents), "currency": currency},
            "balanceType": kind,
            "referenceDate": day.isoformat(),
        }
        for kind, cents in (("closingBooked", booked_cents), ("expected", expected_cents))
    ]
    return json.dumps({"balances": rows}).encode()


def _created(origin: date, expired: bool) -> str:
    """Connected so long ago that an expired consent ran out on the day of the ledger's origin."""
    return f"{origin - timedelta(days=CONSENT_DAYS if expired else 30)}T09:12:33Z"
