"""Who is connected to what: requisitions, institutions, accounts with IBANs whose check digits are right.

A pure function of (seed, number of accounts). One connection, of two or three accounts, has an expired consent.
"""

from __future__ import annotations

from hashlib import blake2b
from random import Random
from typing import NamedTuple
from uuid import UUID

from books.sandbox.bank.people import COMPANY_FORMS, FIRST_NAMES, SURNAMES, TRADES

FEWEST_ACCOUNTS = 6
_ACCOUNTS_A_CONNECTION = 7.5

# institution id -> bank code (Bankleitzahl) of its IBANs; the ids have the API's own form
INSTITUTIONS = {
    "GLS_GEMEINSCHAFTSBANK_GENODEM1GLS": "43060967",
    "SPARKASSE_MUSTERSTADT_SPMUDE21XXX": "50050201",
    "VOLKSBANK_AM_WEHR_GENODEF1VAW": "76090500",
    "KONTOR_DIGITAL_KODIDEBBXXX": "10011001",
    "HANSEATISCHE_KREDIT_HAKRDEHHXXX": "20041133",
    "ALPENLAND_DIREKT_ALDIDEMMXXX": "70020270",
}


class SeededAccount(NamedTuple):
    """An account of a connection; `id` is the aggregator's."""

    id: str
    iban: str
    name: str
    currency: str


class Connection(NamedTuple):
    """A requisition with the accounts it reaches."""

    requisition_id: str
    institution: str
    accounts: list[SeededAccount]


def seed_connections(seed: int, accounts: int) -> list[Connection]:
    """The connections of a seed, the one whose consent expired among them.

    Raises `ValueError` for fewer accounts than one connection of each kind needs.
    """
    if accounts < FEWEST_ACCOUNTS:
        raise ValueError(f"{accounts} accounts cannot be spread over connections; ask for {FEWEST_ACCOUNTS} or more")
    rng = Random(f"connections {seed}")
    institutions = list(INSTITUTIONS)
    found, numbers = [], iter(range(accounts))
    for index, size in enumerate(_sizes(rng, accounts)):
        institution = institutions[index % len(institutions)]
        owner = _owner(rng)
        found.append(
            Connection(
                requisition_id=_uuid(f"{seed} requisition {index}"),
                institution=institution,
                accounts=[
                    SeededAccount(
                        id=_uuid(f"{seed} account {number}"),
                        iban=_iban(INSTITUTIONS[institution], rng.randrange(10**9)),
                        name=owner,
                        currency="EUR",
                    )
                    for number in (next(numbers) for _ in range(size))
                ],
            )
        )
    return found


def expired_requisition(connections: list[Connection]) -> Connection:
    """The connection whose consent expired: the first of two or three accounts."""
    return connections[0]


def _sizes(rng: Random, accounts: int) -> list[int]:
    """How many accounts each connection has: the expired one first, then the others, at least one each."""
    expired = 2 if accounts < 60 else 3
    left = accounts - expired
    others = max(1, round(accounts / _ACCOUNTS_A_CONNECTION) - 1)
    cuts = sorted(rng.sample(range(1, left), others - 1))
    return [expired, *(end - start for start, end in zip([0, *cuts], [*cuts, left], strict=True))]


def _owner(rng: Random) -> str:
    if rng.random() < 0.3:
        return f"{rng.choice(FIRST_NAMES)} {rng.choice(SURNAMES)}"
    return f"{rng.choice(TRADES)} {rng.choice(SURNAMES)} {rng.choice(COMPANY_FORMS)}"


def _uuid(key: str) -> str:
    return str(UUID(bytes=blake2b(key.encode(), digest_size=16).digest(), version=4))


def _iban(bank_code: str, number: int) -> str:
    """A German IBAN; its two check digits make the whole 1 modulo 97 (ISO 13616)."""
    bban = f"{bank_code}{number:010d}"
    check = 98 - int(f"{bban}131400") % 97  # D is 13, E is 14, and 00 stands where the check digits go
    return f"DE{check:02d}{bban}"
