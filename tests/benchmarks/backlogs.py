"""A small customer's documents beside another's 10,000: how long until each is begun, against nights without that bulk.

Two chains drain the backlog; ten ordinary customers always have documents in it, and a small one adds one at a time.
What is measured is from the row's being there to its claim, by the database's clock. The work itself is a sleep.
Then the queries of the three backlogs, over a million rows that wait of 5,000 customers: milliseconds, and what the
plan reads. There is no contender.

Measured by a process of its own (`python -m tests.benchmarks.backlogs`), in an empty database that FLEET_DATABASE_URL
names.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from statistics import median, quantiles
from typing import Any

from sqlalchemy import create_engine, text

from books import attachments, categories, categorizing, turns
from books.chunks import Chunk
from books.leasing import Hold
from books.models import Attachment, AttachmentStatus
from fleet import logs
from fleet.storage import database, session
from fleet.storage.engine import psycopg_url
from fleet.storage.migrate import migrate
from tests.benchmarks.stage import ROOT

_CHAINS, _ORDINARY, _BULK, _SAMPLES, _SECONDS = 2, 10, 10_000, 60, 0.010
_ADD = """
    INSERT INTO attachments (customer, path, status, backlog)
    SELECT :customer, 'x', 'queued', true FROM generate_series(1, :rows) RETURNING id
"""
_MILLION = (
    """
    INSERT INTO bank_accounts (external_id, name, currency, customer, status)
    SELECT 'b' || n, 'n', 'EUR', 'customer ' || n % 5000, 'idle' FROM generate_series(1, 10000) n
    """,
    """
    INSERT INTO transactions
        (account_id, external_id, booked, booking_date, amount_cents, currency, remittance, stored_by, unmatched_by)
    SELECT a.id, 'r' || n, true, date '2026-03-01', -100, 'EUR', 'x', 'm', CASE WHEN n % 2 = 0 THEN :keywords END
    FROM bank_accounts a, generate_series(1, 100) n
    """,
    """
    INSERT INTO attachments (customer, path, status, backlog)
    SELECT 'customer ' || n % 5000, 'x', 'queued', true FROM generate_series(1, 1000000) n
    """,
    "VACUUM ANALYZE transactions, attachments, bank_accounts",
)


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
    """Measure, and print the lines."""
    logs.configure("json", "WARNING")  # a line a document would be most of what is measured, and of what is printed
    migrate(database(), ROOT)
    unloaded, loaded = _starts(bulk=0), _starts(bulk=_BULK)
    print(
        f"backlogs, a small customer's documents until they are begun, {_ORDINARY} others waiting: median "
        f"{median(unloaded) * 1000:.0f} ms, p95 {_p95(unloaded) * 1000:.0f} ms; with another's {_BULK:,} in the same "
        f"backlog median {median(loaded) * 1000:.0f} ms, p95 {_p95(loaded) * 1000:.0f} ms: "
        f"{_p95(loaded) / _p95(unloaded):.2f} times the p95"
    )
    _queries()


def _starts(*, bulk: int) -> list[float]:
    """Seconds until each of the small customer's documents was begun."""
    with session() as s:
        s.execute(text("TRUNCATE attachments, backlog_turns"))
        for number in range(_ORDINARY):
            s.execute(text(_ADD), {"customer": f"ordinary {number}", "rows": 1_000})
        if bulk:
            s.execute(text(_ADD), {"customer": "bulk", "rows": bulk})
    over = threading.Event()

    def drain(name: str) -> None:
        while not over.is_set():
            Chunk("a benchmark", 3).do(lambda: attachments.DOCUMENTS.next_row(name), _work)

    chains = [threading.Thread(target=drain, args=(f"chain {number}",)) for number in range(_CHAINS)]
    for chain in chains:
        chain.start()
    waited = [_one() for _ in range(_SAMPLES)]
    over.set()
    for chain in chains:
        chain.join()
    return waited


def _work(hold: Hold[Attachment]) -> None:
    time.sleep(_SECONDS)
    hold.finish(AttachmentStatus.READ, None)


def _one() -> float:
    with session() as s:
        row = s.scalars(text(_ADD), {"customer": "small", "rows": 1}).one()
    while True:
        with session() as s:
            begun = s.scalar(
                text("SELECT extract(epoch FROM started_at - queued_at) FROM attachments WHERE id = :row"), {"row": row}
            )
        if begun is not None:
            return float(begun)
        time.sleep(_SECONDS)


def _p95(seconds: list[float]) -> float:
    return quantiles(seconds, n=20)[-1]


def _queries() -> None:
    known = categories.current()
    of = {"keywords": known.fingerprint}
    with database().connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("TRUNCATE transactions, attachments, backlog_turns CASCADE"))
        for statement in _MILLION:
            connection.execute(text(statement), of if ":keywords" in statement else {})
    whose = {**of, "last": "customer 2500", "size": 20}
    shares = {**of, "customers": [f"customer {number}" for number in range(20)], "share": 1}
    for name, query, given in (
        ("whose turn it is, of rows that keywords were not tried on", categorizing._UNTRIED[0], whose),
        ("their rows", categorizing._UNTRIED[1], shares),
        ("whose turn it is, of rows for the model", categorizing._UNMATCHED[0], whose),
        ("their rows", categorizing._UNMATCHED[1], shares),
    ):
        with session() as s:
            s.execute(query, given)
            plan: list[Any] = list(s.scalars(text(f"EXPLAIN (ANALYZE, BUFFERS) {query.text}"), given))
        buffers = next(line.strip() for line in plan if "Buffers" in line)
        scans = sorted({line.split("using ")[1].split(" ")[0] for line in plan if "using " in line})
        print(f"backlogs, a million rows: {name}: {plan[-1].strip()}; {buffers}; by {', '.join(scans)}")
    for what, call in (
        ("rows to be sorted counted", categorizing.backlog),
        ("documents counted", attachments.backlog),
        ("the next document found", lambda: turns.step("a benchmark", attachments.DOCUMENTS._behind)),
        (
            "twenty rows to be sorted taken",
            lambda: len(categorizing._take(20, "a benchmark", "its delivery", known)[1]),
        ),
    ):
        call()  # statements are compiled, connections are there
        began = time.perf_counter()
        found = call()
        print(f"backlogs, a million rows: {what} ({found}) in {(time.perf_counter() - began) * 1000:.1f} ms")


if __name__ == "__main__":
    main()
