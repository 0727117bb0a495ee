"""What one more job, waiting message, process or row costs: slopes between two sizes, so that what is there anyway
drops out. `docs/scaling.md` reckons with them.

Redis' commands, time and memory are what the server counts itself; what a script calls counts as commands too. Columns
of a row are filled by their type, the texts with forty characters, so a row with short or empty ones is smaller.
Not guaranteed: an absolute figure on another machine; commands, bytes and connections travel, times do not.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from sqlalchemy import Connection, create_engine, text

from books import documents
from books.sandbox import receipts
from fleet.actor import FleetActor
from fleet.storage.engine import psycopg_url
from fleet.storage.migrate import migrate
from tests.benchmarks.contest import OURS
from tests.benchmarks.jobs import declare
from tests.benchmarks.stage import ROOT, Stage, require_done

_FEW, _MANY = 2_000, 10_000
_TABLES = ("slots", "outbox", "transactions", "attachments", "agent_runs", "agent_steps", "outside_effects")
_BY_TYPE = {
    "integer": "n",
    "bigint": "n",
    "boolean": "true",
    "date": "date '2026-03-03'",
    "timestamp with time zone": "now()",
    "timestamp without time zone": "now()",
    "jsonb": "jsonb_build_object('n', n)",
    "json": "json_build_object('n', n)",
    "bytea": "decode(md5(n::text), 'hex')",
    "uuid": "gen_random_uuid()",
    "double precision": "n",
    "numeric": "n",
    "ARRAY": "'{}'",
}
_TEXT = "lpad(n::text, 40, 'x')"


def report(stage: Stage, database_url: str) -> None:
    """Measure, and print a line a slope."""
    print(f"scaling: slopes between {_FEW:,} and {_MANY:,}")
    for what, measure in (
        ("send, one by one", _sent),
        ("send_many", _sent_at_once),
        ("a job, from fetch to end", _run),
    ):
        few, many = measure(stage, _FEW), measure(stage, _MANY)
        told = ", ".join(f"{(many[name] - few[name]) / (_MANY - _FEW):,.1f} {name}" for name in few)
        print(f"  {what}: {told}")
    for what, size in (("an id", 0), ("1,000 letters", 1_000), ("10,000 letters", 10_000)):
        grown = _waiting(stage, _MANY, size) - _waiting(stage, _FEW, size)
        print(f"  a waiting message that carries {what}: {grown / (_MANY - _FEW):,.0f} bytes of Redis")
    few_threads, many_threads = _connections(stage, 1, 4), _connections(stage, 1, 64)
    two = _connections(stage, 2, 4)
    print(
        f"  a worker process: {two - few_threads} connections to Redis; "
        f"a thread: {(many_threads - few_threads) / 60:.2f} more"
    )
    _documents()
    _rows(database_url)


def _documents() -> None:
    """Seconds of a processor that reading takes, the median of PDFs (most bring their text) and of pictures."""
    taken: dict[str, list[float]] = {"a PDF": [], "a picture, by OCR": []}
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as folder:
        drawn = receipts.draw(1, Path(folder), count=16, ocr=8)
        documents.read(next(one.path for one in drawn if one.path.suffix != ".pdf"))  # loads the models
        for receipt in drawn:
            began = time.process_time()
            documents.read(receipt.path)
            kind = "a PDF" if receipt.path.suffix == ".pdf" else "a picture, by OCR"
            taken[kind].append(time.process_time() - began)
    told = ", ".join(f"{kind} {statistics.median(seconds):.3f} s" for kind, seconds in taken.items() if seconds)
    print(f"  CPU of reading a document: {told}")


def _counted(stage: Stage, work: Callable[[], object]) -> dict[str, float]:
    before = stage.client.info()
    work()
    after = stage.client.info()
    spent = sum(after[name] - before[name] for name in ("used_cpu_user", "used_cpu_sys"))
    return {
        "commands": after["total_commands_processed"] - before["total_commands_processed"],
        "µs of Redis": spent * 1e6,
        "bytes to it": after["total_net_input_bytes"] - before["total_net_input_bytes"],
        "bytes from it": after["total_net_output_bytes"] - before["total_net_output_bytes"],
    }


def _noop(stage: Stage) -> FleetActor[Any, Any]:
    return cast("FleetActor[Any, Any]", declare(stage.broker(OURS), "noop"))


def _sent(stage: Stage, jobs: int) -> dict[str, float]:
    noop = _noop(stage)
    counted = _counted(stage, lambda: [noop.send(number) for number in range(jobs)])
    stage.clear()
    return counted


def _sent_at_once(stage: Stage, jobs: int) -> dict[str, float]:
    noop = _noop(stage)
    counted = _counted(stage, lambda: noop.send_many((number,) for number in range(jobs)))
    stage.clear()
    return counted


def _run(stage: Stage, jobs: int) -> dict[str, float]:
    _noop(stage).send_many((number,) for number in range(jobs))
    with stage.workers(OURS) as (worker,):

        def drain() -> None:
            worker.say("go")
            stage.wait_until_empty(OURS)

        counted = _counted(stage, drain)
        counted["µs of the worker"] = worker.cpu() * 1e6
        require_done([worker.stop()], jobs)
    stage.clear()
    return counted


def _waiting(stage: Stage, messages: int, size: int) -> int:
    before = stage.client.info("memory")["used_memory"]
    noop = _noop(stage)
    noop.send_many(("x" * size if size else number,) for number in range(messages))
    used = stage.client.info("memory")["used_memory"] - before
    stage.clear()
    return int(used)


def _connections(stage: Stage, processes: int, threads: int) -> int:
    """While they work: what a message costs at each of its steps is then open."""
    naps = cast("FleetActor[Any, Any]", declare(stage.broker(OURS), "nap"))
    naps.send_many((0.01,) for _ in range(processes * threads * 20))
    with stage.workers(OURS, processes=processes, threads=threads) as workers:
        for worker in workers:
            worker.say("go")
        stage.wait_until_empty(OURS)
        found = len(stage.client.client_list())
        for worker in workers:
            worker.stop()
    stage.clear()
    return found


def _rows(url: str) -> None:
    engine = create_engine(psycopg_url(url))
    migrate(engine, Path(ROOT))
    with engine.connect() as connection:
        connection.execute(text("SET session_replication_role = replica"))
        known = set(connection.scalars(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")))
        told = ", ".join(f"{name} {_bytes(connection, name):,.0f}" for name in _TABLES if name in known)
        print(f"  bytes of PostgreSQL a row, with its indexes: {told}")
        connection.rollback()
    engine.dispose()


def _bytes(connection: Connection, table: str) -> float:
    few, many = (_size_with(connection, table, rows) for rows in (_FEW, _MANY))
    return (many - few) / (_MANY - _FEW)


def _size_with(connection: Connection, table: str, rows: int) -> int:
    columns = connection.execute(
        text(
            "SELECT column_name, data_type FROM information_schema.columns "
            "WHERE table_name = :table AND table_schema = 'public'"
        ),
        {"table": table},
    ).all()
    names = ", ".join(f'"{name}"' for name, _ in columns)
    values = ", ".join(_BY_TYPE.get(kind, _TEXT) for _, kind in columns)
    connection.execute(text(f'TRUNCATE "{table}" CASCADE'))
    insert = f'INSERT INTO "{table}" ({names}) OVERRIDING SYSTEM VALUE SELECT {values}'
    connection.execute(text(f"{insert} FROM generate_series(1, {rows}) AS n"))
    size: int = connection.execute(text("SELECT pg_total_relation_size(:table)"), {"table": table}).scalar_one()
    return size
