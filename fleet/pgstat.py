"""How busy tables are: what PostgreSQL counted of each between two readings of `pg_stat_user_tables`.

Each reading needs a transaction of its own. Within one, PostgreSQL shows what it read of a table first again and again,
so that a difference of two readings would always be nought; hence autocommit, and a connection a reading.

Not guaranteed: the last second. A session tells what it did at the end of a transaction, once a second at most. Where
the counters were set back between two readings (`pg_stat_reset`, a crash of the server) there is no rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, text

from fleet.errors import NotDeclared

COUNTED = {
    "scans": "seq_scan",
    "rows scanned": "seq_tup_read",
    "by index": "idx_scan",
    "inserted": "n_tup_ins",
    "updated": "n_tup_upd",
    "deleted": "n_tup_del",
}
"""What is counted, by the name that it is shown under, and PostgreSQL's name for it."""

_READING = text(f"""
SELECT schemaname, relname, clock_timestamp() AS at, n_live_tup, n_dead_tup,
{", ".join(f"coalesce({column}, 0) AS {column}" for column in COUNTED.values())} FROM pg_stat_user_tables
""")


@dataclass(frozen=True)
class Reading:
    """A table's counters at an instant of the server's, in the order of `COUNTED`, and how many rows it has by then."""

    at: datetime
    counters: tuple[int, ...]
    live: int
    dead: int


@dataclass(frozen=True)
class Rates:
    """Between two readings: each counter a second, None where it was set back; and the rows at the second."""

    over: timedelta
    each_second: tuple[float | None, ...]
    live: int
    dead: int


def read(connection: Connection, tables: Sequence[str]) -> dict[str, Reading]:
    """A reading of the tables of these names (`table` or `schema.table`), by `schema.table`.

    Raises `NotDeclared` for a name that no table has.
    """
    found = {(row.schemaname, row.relname): row for row in connection.execute(_READING)}
    known = {name for schema, table in found for name in (table, f"{schema}.{table}")}
    for name in tables:
        if name not in known:
            raise NotDeclared("table", name, known if "." in name else {table for _, table in found})
    return {
        f"{schema}.{table}": Reading(
            row.at, tuple(getattr(row, column) for column in COUNTED.values()), row.n_live_tup, row.n_dead_tup
        )
        for (schema, table), row in sorted(found.items())
        if table in tables or f"{schema}.{table}" in tables
    }


def read_now(engine: Engine, tables: Sequence[str]) -> dict[str, Reading]:
    """A reading on a connection of its own, in autocommit; raises as `read` does, and what the database raises."""
    with engine.connect() as connection:
        return read(connection.execution_options(isolation_level="AUTOCOMMIT"), tables)


def rates(first: Mapping[str, Reading], second: Mapping[str, Reading]) -> dict[str, Rates]:
    """What happened between two readings, of the tables that are in both."""
    return {name: _rates(first[name], second[name]) for name in second if name in first}


def _rates(first: Reading, second: Reading) -> Rates:
    over = second.at - first.at
    pairs = zip(first.counters, second.counters, strict=True)
    each_second = tuple((now - then) / over.total_seconds() if now >= then else None for then, now in pairs)
    return Rates(over, each_second, second.live, second.dead)
