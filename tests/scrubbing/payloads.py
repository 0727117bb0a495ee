"""Bookkeeping as it is written in Germany and England: names, IBANs, amounts, mails, secrets, and texts around them.

Drawn from a seed. Each payload knows the pieces that must not leave, and an id that must.
"""

from __future__ import annotations

import random
import string
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from fleet.iban import LENGTHS

FIRST = [
    *("Erika", "Jürgen", "Änne", "Björn", "Wolfgang", "Søren", "Sigrid", "Óscar", "Heike", "Uwe", "Gwendolyn"),
    *("Nigel", "Fiona", "Alastair", "Percival"),
]
LAST = [
    *("Mustermann", "Müller-Lüdenscheidt", "Weißgerber", "Özdemir", "Hußmann", "Krautwurst", "Ackermann"),
    *("Zwiebelfisch", "Featherstonehaugh", "O'Shaughnessy", "Cholmondeley", "Higginbottom", "Ramsbotham"),
    *("Wolstenholme", "Śliwińska"),
]
TRADES = ["Bäckerei", "Autohaus", "Elektro", "Malerbetrieb", "Plumbing", "Café", "Zahnarztpraxis", "Steuerkanzlei"]
FORMS = ["GmbH", "GmbH & Co. KG", "AG", "UG (haftungsbeschränkt)", "e.K.", "KG", "OHG", "Ltd", "LLC", "Inc."]
HOSTS = ["example.de", "buchhaltung.example", "mail.example.co.uk", "büro-süd.example"]


@dataclass(frozen=True)
class Payload:
    """One posting and who is in it; `pieces` must not leave, `id` must."""

    id: str
    name: str
    company: str
    iban: str
    mail: str
    phone: str
    cents: int
    remittance: str
    secret: str
    texts: tuple[str, ...]
    pieces: tuple[str, ...]

    @property
    def euros(self) -> Decimal:
        return Decimal(self.cents) / 100

    def values(self) -> dict[str, Any]:
        """As a bank's API and a record have it."""
        return {
            "id": self.id,
            "counterparty": self.company,
            "creditorName": self.name,
            "iban": self.iban,
            "customer_email": self.mail,
            "amount_cents": self.cents,
            "amount": self.euros,
            "remittance": self.remittance,
            "api_key": self.secret,
        }


def payloads(count: int, seed: int) -> Iterator[Payload]:
    """So many payloads, the same for the same seed."""
    draw = random.Random(seed)
    for _ in range(count):
        yield _payload(draw)


def _payload(draw: random.Random) -> Payload:
    first, last = draw.choice(FIRST), draw.choice(LAST)
    name, company = f"{first} {last}", f"{draw.choice(TRADES)} {draw.choice(LAST)} {draw.choice(FORMS)}"
    local = f"{first}.{last}".lower().replace("'", "")
    mail = f"{draw.choice([local, local + '+rechnung', 'buchhaltung.' + last.lower()])}@{draw.choice(HOSTS)}"
    phone = f"+49 {draw.randint(150, 179)} {draw.randint(1_000_000, 9_999_999)}"
    plain, cents, secret = _iban(draw), draw.randint(1_000_000, 9_999_999), _secret(draw)
    iban = draw.choice([plain, _spaced(plain), plain.lower(), plain.replace(plain[4:8], plain[4:8] + " ", 1)])
    remittance = f"Rechnung {draw.randint(1, 99)} {last} {draw.choice(['Miete', 'Gehalt', 'invoice', 'Honorar'])}"
    id = str(uuid.UUID(int=draw.getrandbits(128), version=4))
    written = _written(draw, cents)
    texts = tuple(
        form.format(**vars_of(name, last, company, iban, mail, phone, written, secret, cents, id, remittance))
        for form in draw.sample(TEXTS, 3)
    )
    pieces = (
        name,
        last,
        company,
        iban,
        plain,
        _spaced(plain),
        mail,
        mail.replace("@", "%40"),
        phone,
        str(cents),
        secret,
    )
    return Payload(
        id, name, company, iban, mail, phone, cents, remittance, secret, texts, (*pieces, remittance, *_amounts(cents))
    )


def vars_of(
    name: str,
    last: str,
    company: str,
    iban: str,
    mail: str,
    phone: str,
    amount: str,
    secret: str,
    cents: int,
    id: str,
    remittance: str,
) -> dict[str, Any]:
    return {
        "name": name,
        "last": last,
        "company": company,
        "iban": iban,
        "mail": mail,
        "phone": phone,
        "amount": amount,
        "secret": secret,
        "cents": cents,
        "id": id,
        "remittance": remittance,
        "escaped": mail.replace("@", "%40"),
    }


TEXTS = [
    "message {id} found no account {iban}",
    "message {id}: Herr {name} schuldet {amount}",
    "message {id} of Mrs {name} was refused after 340 of 1772 rows",
    "message {id} der Firma {company} über {amount} kam zweimal",
    "message {id} to {mail} bounced: 550 no such user",
    "message {id} posted to https://api.bank.example/v1/p?email={escaped}&iban={iban}&page=2",
    "message {id} went to https://robot:{secret}@bank.example/v1",
    "message {id} authorized with Bearer {secret}",
    "message {id} customer={name}, iban={iban}, rows=3",
    'message {id} got {{"creditorName": "{name}", "iban": "{iban}", "amount_cents": {cents}, "page": 2}}',
    "message {id} got {{'counterparty': '{company}', 'amount': Decimal('{cents}'), 'rows': 3}}",
    "message {id} Row(name={name!r}, remittance={remittance!r}, attempts=3)",
    "message {id} verwendungszweck: {remittance}; rows=3",
    "message {id}\n[SQL: INSERT INTO t (n) VALUES ('{last}', {cents})]\n[parameters: ('{name}', {cents})]",
    "message {id} violates\nDETAIL:  Key (email)=({mail}) already exists.",
    "message {id} violates\nDETAIL:  Failing row contains (17, {name}, {iban}, {cents}).",
    "message {id}: 1 validation error [type=int_parsing, input_value='{name}', input_type=str]",
    "message {id}: could not convert string to float: '{amount}'",
    "message {id}: Betrag {amount} an {company}",
    "message {id} password={secret} rows=3",
    "message {id} has a bad row:\n{iban}\tHerr {name}\t{phone}\n{amount}\t{secret}\t{mail}\r\nrows 3",
    "message {id} has\xa0a bad row:\u2028Frau\xa0{name}\xa0{phone}\xa0und\xa0{company}\u2003an {iban}",
    'message {id} got {{"creditorName" : "{name}", "remittance" : "{remittance}", "token" : "{secret}", "page" : 2}}',
    "message {id} was sent args=(('{iban}', 1), [{{'a': ')'}}, '{name}'], ('{company}', 2)) rows=3",
    "message {id} was cut at customer='{name}, {remittance}",
    "message {id} went by postgresql+psycopg://fleet:{secret}/a#b?c@d@db:5432/books",
]


def _iban(draw: random.Random) -> str:
    country = draw.choice(["DE"] * 8 + sorted(LENGTHS))
    length = LENGTHS[country]
    bank = "".join(draw.choices(string.ascii_uppercase, k=4)) if country in ("GB", "NL", "IE") else ""
    digits = bank + "".join(draw.choices(string.digits, k=length - 4 - len(bank)))
    if draw.random() < 0.2:
        return f"{country}{draw.randint(2, 98):02}{digits}"  # whatever its checksum
    number = int("".join(str(int(sign, 36)) for sign in f"{digits}{country}00"))
    return f"{country}{98 - number % 97:02}{digits}"


def _spaced(iban: str) -> str:
    return " ".join(iban[at : at + 4] for at in range(0, len(iban), 4))


def _written(draw: random.Random, cents: int) -> str:
    english, plain, german, short = _amounts(cents)
    return draw.choice(
        [f"{german} €", f"€{english}", f"EUR {plain}", f"{short} Euro", german, english, f"{cents} cents"]
    )


def _amounts(cents: int) -> tuple[str, str, str, str]:
    english = f"{cents / 100:,.2f}"
    plain = english.replace(",", "")
    return english, plain, english.translate(str.maketrans(",.", ".,")), plain.replace(".", ",")


def _secret(draw: random.Random) -> str:
    letters = string.ascii_letters + string.digits
    token = "".join(draw.choices(letters, k=40))
    return draw.choice(
        [
            f"sk-proj-{token}",
            "".join(draw.choices("0123456789abcdef", k=64)),
            f"ghp_{token[:36]}",
            f"eyJhbGciOiJIUzI1NiJ9.eyJ{token[:20]}.{token[:27]}",
            f"xoxb-{token[:12]}-{token[12:30]}",
        ]
    )
