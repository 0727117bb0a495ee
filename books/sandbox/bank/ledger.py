"""What happened on an account: a seeded list of transactions that first appear, then are booked.

A ledger is a pure function of (seed, account, origin); what it shows is one of the asked-for instant. It reaches
120 to 180 days back and a week ahead of its origin, so that the night itself brings new rows. Most rows are booked at
03:00 in Berlin, a few of them a night later; a quarter (instant payments) within minutes. `internalTransactionId`
stays the same from pending to booked. Half of the institutions name no `transactionId` while a row is pending.

The JSON of each row is made once; a request filters and joins bytes.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from hashlib import md5
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

from books.sandbox.bank.connections import INSTITUTIONS, SeededAccount
from books.sandbox.bank.people import COMPANY_FORMS, DEALINGS, SURNAMES, TRADES, Dealing

BERLIN = ZoneInfo("Europe/Berlin")
_AHEAD = timedelta(days=7)
_BOOKING_TIME = time(3, 0)
_MEDIAN_ROWS, _ROWS_SIGMA = 30, 0.6  # a window of 90 days
_MONTHS = ("Jan", "Feb", "Mär", "Apr", "Mai", "Jun", "Jul", "Aug", "Sep", "Okt", "Nov", "Dez")


@dataclass(frozen=True, slots=True)
class Entry:
    """One transaction, with the JSON of both its forms. Before `appears` it does not exist."""

    id: str
    appears: datetime
    books: datetime
    pending_on: date
    booked_on: date
    cents: int
    pending_json: bytes
    booked_json: bytes


@dataclass(frozen=True, slots=True)
class Shown:
    """What an account shows at an instant for a span of days, newest first."""

    booked: list[Entry]
    pending: list[Entry]

    def body(self, last_updated: datetime) -> bytes:
        """The answer to `GET …/transactions/`."""
        booked = b",".join(entry.booked_json for entry in self.booked)
        pending = b",".join(entry.pending_json for entry in self.pending)
        updated = last_updated.isoformat().encode()
        return b'{"transactions":{"booked":[%b],"pending":[%b]},"last_updated":"%b"}' % (booked, pending, updated)


class Ledger:
    """All entries of one account, newest first."""

    def __init__(self, seed: int, account: SeededAccount, institution: str, origin: date) -> None:
        rng = Random(f"ledger {seed} {account.id} {origin}")
        quiet_pending = list(INSTITUTIONS).index(institution) % 2 == 0
        days = rng.randint(120, 180)
        rows = max(1, round(rng.lognormvariate(math.log(_MEDIAN_ROWS), _ROWS_SIGMA) * days / 90))
        rows_ahead = round(rows * _AHEAD.days / days)
        offsets = [rng.randrange(-days, 1) for _ in range(rows)]
        offsets += [rng.randint(0, _AHEAD.days) for _ in range(rows_ahead)] + [0]  # each has a row today
        entries = [_entry(rng, account, index, origin + timedelta(days=offset), quiet_pending)
                   for index, offset in enumerate(offsets)]  # fmt: skip
        self.entries = sorted(entries, key=lambda entry: entry.appears, reverse=True)
        self._opening_cents = rng.randrange(50_000, 4_000_000)

    def shown(self, at: datetime, since: date, until: date) -> Shown:
        """Booked rows by booking date and pending rows by the day they appeared, both ends included."""
        there = [entry for entry in self.entries if entry.appears <= at]
        return Shown(
            booked=[entry for entry in there if entry.books <= at and since <= entry.booked_on <= until],
            pending=[entry for entry in there if entry.books > at and since <= entry.pending_on <= until],
        )

    def balances(self, at: datetime) -> tuple[int, int]:
        """Cents booked, and cents with what is pending."""
        booked = self._opening_cents + sum(entry.cents for entry in self.entries if entry.books <= at)
        pending = sum(entry.cents for entry in self.entries if entry.appears <= at < entry.books)
        return booked, booked + pending


def _entry(rng: Random, account: SeededAccount, index: int, day: date, quiet_pending: bool) -> Entry:
    second = rng.randrange(7 * 3600, 22 * 3600) if rng.random() < 0.75 else rng.randrange(0, 86_400)
    appears = datetime.combine(day, time(), BERLIN).astimezone(UTC) + timedelta(seconds=second)
    books = _booking(rng, appears)
    entry_id = md5(f"{account.id} {index} {day}".encode(), usedforsecurity=False).hexdigest()
    (dealing,) = rng.choices(DEALINGS, [dealing.weight for dealing in DEALINGS])
    cents = round(math.copysign(rng.lognormvariate(math.log(abs(dealing.median_cents)), 0.7), dealing.median_cents))
    pending_on, booked_on = appears.astimezone(BERLIN).date(), books.astimezone(BERLIN).date()
    common = {
        **_parties(rng, account, dealing, day),
        "valueDate": pending_on.isoformat(),
        "transactionAmount": {"amount": decimal_text(cents), "currency": account.currency},
        "internalTransactionId": entry_id,
        "proprietaryBankTransactionCode": "NTRF",
    }
    bank_id = {"transactionId": f"{pending_on:%Y%m%d}{int(entry_id[:10], 16) % 10**9:09d}"}
    booked = {**bank_id, "bookingDate": booked_on.isoformat(), **common}
    pending = common if quiet_pending else {**bank_id, **common}
    return Entry(entry_id, appears, books, pending_on, booked_on, cents, _json(pending), _json(booked))


def _booking(rng: Random, appears: datetime) -> datetime:
    """Soon for a quarter of all entries; else at 03:00 of the next night or, for one in six, of the one after."""
    if rng.random() < 0.25:
        return appears + timedelta(minutes=rng.uniform(5, 90))
    local = appears.astimezone(BERLIN)
    nights = (0 if local.time() < _BOOKING_TIME else 1) + (1 if rng.random() < 1 / 6 else 0)
    return datetime.combine(local.date() + timedelta(days=nights), _BOOKING_TIME, BERLIN).astimezone(UTC)


def _parties(rng: Random, account: SeededAccount, dealing: Dealing, day: date) -> dict[str, Any]:
    filled = {
        "trade": rng.choice(TRADES),
        "surname": rng.choice(SURNAMES),
        "form": rng.choice(COMPANY_FORMS),
        "number": rng.randrange(10_000, 99_999),
        "month": f"{_MONTHS[day.month - 1]} {day.year}",
    }
    other = "debtor" if dealing.median_cents > 0 else "creditor"
    text = dealing.remittance.format(**filled)
    parties: dict[str, Any] = {f"{other}Name": dealing.counterparty.format(**filled)}
    if rng.random() < 0.1:  # some banks cut their purpose lines into a list
        parties["remittanceInformationUnstructuredArray"] = [text, f"EREF+{filled['number']}"]
    else:
        parties["remittanceInformationUnstructured"] = text
    return parties


def decimal_text(cents: int) -> str:
    """Cents as the API writes an amount."""
    return f"{'-' if cents < 0 else ''}{abs(cents) // 100}.{abs(cents) % 100:02d}"


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
