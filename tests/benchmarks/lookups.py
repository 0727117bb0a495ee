"""Scans of the table `categories` a document, with them read for each and with them kept; as PostgreSQL counted them.

A document is a transaction that a chunk of one row sorts by keyword, so that no model is in the figures. The one
scan by index is the foreign key's check of the row that is written. There is no contender.

Measured by a process of its own (`python -m tests.benchmarks.lookups`), in an empty database that FLEET_DATABASE_URL
names.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from datetime import date

from sqlalchemy import create_engine, insert, text

from books import categories, categorizing
from books.models import AccountStatus, BankAccount, Transaction
from fleet import logs
from fleet.storage import database, session
from fleet.storage.engine import psycopg_url
from fleet.storage.migrate import migrate
from tests.benchmarks.stage import ROOT

_DOCUMENTS = 500
_SEEN = "SELECT seq_scan, idx_scan FROM pg_stat_user_tables WHERE relname = 'categories'"
_WORKING = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'
AND pid <> pg_backend_pid() AND application_name <> 'fleet reference'
"""


def report(server_url: str) -> None:
    """Have it measured on a server, and printed."""
    name = f"bench_{uuid.uuid4().hex[:12]}"
    url = psycopg_url(server_url).set(database=name)
    admin = create_engine(psycopg_url(server_url), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f'CREATE DATABASE "{name}"'))
        environment = {**os.environ, "FLEET_DATABASE_URL": url.render_as_string(hide_password=False)}
        subprocess.run([sys.executable, "-m", __name__], env=environment, cwd=ROOT, check=True)
        connection.execute(text(f'DROP DATABASE "{name}" WITH (FORCE)'))
    admin.dispose()


def main() -> None:
    """Measure, and print the line."""
    logs.configure("json", "WARNING")  # a line a document would be most of what is measured, and of what is printed
    migrate(database(), ROOT)
    each, kept = _measure(_read_for_each), _measure(categories.current)
    print(
        f"lookups, {_DOCUMENTS} documents sorted by keyword, a document: {each} where each reads them; {kept} "
        f"where they are kept (by pg_stat_user_tables; the index scan is the foreign key's)"
    )


def _read_for_each() -> categories.Categories:
    with session() as s:
        return categories.read(s)


def _measure(current: Callable[[], categories.Categories]) -> str:
    """Scans of the whole table, scans of its index, and milliseconds, a document."""
    rows = _documents()
    usual, categorizing.categories.current = categories.current, current
    try:
        before, began = _seen(), time.perf_counter()
        for row in rows:
            assert categorizing.categorize_uncategorized(1, token=str(row)).more
        took = (time.perf_counter() - began) / len(rows) * 1000
        scans, by_index = ((now - then) / len(rows) for now, then in zip(_seen(), before, strict=True))
    finally:
        categorizing.categories.current = usual
    return f"{scans:.3f} scans, {by_index:.3f} by index, {took:.2f} ms"


def _seen() -> tuple[int, int]:
    """Scans by now, once every connection that worked has ended, and so told what it did."""
    database().dispose()
    while True:
        with database().connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            if not connection.scalar(text(_WORKING)):
                scans, by_index = connection.execute(text(_SEEN)).one()
                return int(scans), int(by_index)
        time.sleep(0.02)


def _documents() -> list[int]:
    account = {"currency": "EUR", "customer": "c", "status": AccountStatus.IDLE}
    row = {"booked": True, "booking_date": date(2026, 3, 1), "amount_cents": -1250, "currency": "EUR", "stored_by": "m"}
    with session() as s:
        owner = insert(BankAccount).values(external_id=uuid.uuid4().hex, name="n", **account)
        account_id = s.scalar(owner.returning(BankAccount.id))
        values = [
            {"account_id": account_id, "external_id": str(number), "remittance": f"TANKSTELLE Nr. {number}", **row}
            for number in range(_DOCUMENTS)
        ]
        return list(s.scalars(insert(Transaction).returning(Transaction.id), values))


if __name__ == "__main__":
    main()
