"""The two CSV files of a night: one that is right, in English numbers; one in German numbers with a broken row 341.

Pure functions of the seed.
"""

from __future__ import annotations

import csv
from datetime import date, timedelta
from pathlib import Path
from random import Random

GOOD_ROWS = 400
BROKEN_ROWS = 1_772
BROKEN_ROW = 341
BROKEN_AMOUNT = "12,x4"

_TEXTS = (
    "Bürobedarf Papier, Toner",
    "Bewirtung Kundengespräch",
    "Tankstelle Nr. 12",
    "Barverkauf, Danke für Ihren Auftrag",
    "Mobilfunk Karte",
    "Porto",
)


def write_good_csv(path: Path, seed: int, today: date) -> Path:
    """`GOOD_ROWS` rows, `,` between cells, amounts like `1,234.56`."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Date", "Amount", "Currency", "Payee", "Description"])
        for day, cents, text in _movements(Random(f"good csv {seed}"), GOOD_ROWS, today):
            writer.writerow([day.isoformat(), f"{cents / 100:,.2f}", "EUR", "Kasse", text])
    return path


def write_broken_csv(path: Path, seed: int, today: date) -> Path:
    """`BROKEN_ROWS` rows, `;` between cells, amounts like `1.234,56`; that of row `BROKEN_ROW` is no number."""
    with path.open("w", encoding="cp1252", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["Buchungstag", "Betrag", "Währung", "Empfänger", "Verwendungszweck"])
        movements = _movements(Random(f"broken csv {seed}"), BROKEN_ROWS, today)
        for number, (day, cents, text) in enumerate(movements, start=1):
            german = f"{cents / 100:,.2f}".translate(str.maketrans(",.", ".,"))
            amount = BROKEN_AMOUNT if number == BROKEN_ROW else german
            writer.writerow([f"{day:%d.%m.%Y}", amount, "EUR", "Kasse", text])
    return path


def _movements(rng: Random, rows: int, today: date) -> list[tuple[date, int, str]]:
    return [
        (today - timedelta(days=rng.randrange(365)), rng.randrange(-250_000, 250_000), rng.choice(_TEXTS))
        for _ in range(rows)
    ]
