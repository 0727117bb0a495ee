"""A sweep over a query: pages by key, a savepoint a row, and the truth when the database goes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, func, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from structlog.testing import capture_logs

from fleet import deadline
from fleet.errors import DeadlineExceeded
from fleet.storage import database, session
from fleet.storage.engine import psycopg_url
from fleet.storage.keyset import Keyset, Streamed
from fleet.sweep import SweepResult, sweep
from tests.conftest import ROOT, Environment


class Base(DeclarativeBase): ...


class Parcel(Base):
    __tablename__ = "swept_parcels"
    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(default="queued")
    weight: Mapped[int] = mapped_column(default=0)


@pytest.fixture
def parcels(environment: Environment) -> Iterator[Engine]:
    """Ten parcels, queued; no weight may be negative."""
    made = create_engine(psycopg_url(environment.database_url))
    Base.metadata.drop_all(made)
    Base.metadata.create_all(made)
    with made.begin() as connection:
        connection.execute(text("ALTER TABLE swept_parcels ADD CHECK (weight >= 0)"))
        connection.execute(
            text(
                "INSERT INTO swept_parcels SELECT n, 'queued', CASE n WHEN 1 THEN -1 ELSE n END FROM "
                "generate_series(2, 11) n"
            )
        )
    yield made
    made.dispose()


QUEUED: Keyset[int] = Keyset(select(Parcel.id).where(Parcel.status == "queued"), by=Parcel.id, rows_a_page=3)


def status(engine: Engine) -> dict[int, str]:
    with Session(engine) as s:
        return {row.id: row.status for row in s.scalars(select(Parcel).order_by(Parcel.id))}


def send(s: Session, parcel: int, weight: int = 1) -> None:
    s.execute(update(Parcel).where(Parcel.id == parcel).values(status="sent", weight=weight))


def test_rows_that_leave_the_query_as_they_are_worked_on_shift_none_of_the_others(parcels: Engine) -> None:
    seen: list[int] = []

    def work(s: Session, parcel: int) -> None:
        seen.append(parcel)
        send(s, parcel)

    assert sweep("parcels", QUEUED, work) == SweepResult(10, 0, "done")
    assert seen == list(range(2, 12))
    assert set(status(parcels).values()) == {"sent"}


def test_a_poisoned_first_row_costs_one_failure_and_what_it_wrote_itself(parcels: Engine) -> None:
    def work(s: Session, parcel: int) -> None:
        send(s, parcel)
        if parcel == 2:
            send(s, parcel, weight=-1)

    with capture_logs() as lines:
        assert sweep("parcels", QUEUED, work, key=lambda parcel: parcel) == SweepResult(10, 1, "done")
    assert status(parcels) == {2: "queued"} | dict.fromkeys(range(3, 12), "sent")
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("sweep_row_failed", "warning"),
        ("sweep", "warning"),
    ]
    assert lines[0]["row"] == "2"


def test_what_a_row_only_added_to_its_session_fails_in_its_own_savepoint(parcels: Engine) -> None:
    def work(s: Session, parcel: int) -> None:
        s.add(Parcel(id=parcel + 100 if parcel != 5 else 6, status="new"))

    with capture_logs() as lines:
        assert sweep("parcels", Keyset(QUEUED.statement, by=Parcel.id), work).failed == 1
    assert "IntegrityError" in lines[0]["error"]
    assert len(status(parcels)) == 10 + 9


def test_a_deadline_leaves_and_what_was_done_before_it_stays(parcels: Engine) -> None:
    def work(s: Session, parcel: int) -> None:
        send(s, parcel)
        if parcel == 6:
            raise DeadlineExceeded("the soft budget is used up")

    with capture_logs() as lines, pytest.raises(DeadlineExceeded):
        sweep("parcels", QUEUED, work)
    (line,) = lines
    assert (line["verdict"], line["processed"], line["failed"]) == ("cut", 4, 0)
    assert [number for number, state in status(parcels).items() if state == "sent"] == [2, 3, 4, 5]


def test_a_budget_that_ends_in_a_statement_says_how_many_rows_stay(parcels: Engine) -> None:
    def work(s: Session, parcel: int) -> None:
        send(s, parcel)
        while parcel == 6:
            pass

    with pytest.raises(DeadlineExceeded, match="timed out after 4 of 10"):
        deadline.run_within(timedelta(seconds=0.3), sweep, "parcels", QUEUED, work)
    assert list(status(parcels).values()).count("sent") == 4


def test_a_connection_that_is_gone_ends_the_sweep_and_only_what_is_kept_is_counted(parcels: Engine) -> None:
    def work(s: Session, parcel: int) -> None:
        send(s, parcel)
        if parcel == 6:  # the second of its page
            with parcels.begin() as other:
                own = s.scalar(select(func.pg_backend_pid()))
                other.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": own})

    with capture_logs() as lines, pytest.raises(DBAPIError):
        sweep("parcels", QUEUED, work)
    (line,) = lines
    assert (line["event"], line["verdict"], line["processed"], line["failed"]) == ("sweep", "cut", 3, 0)
    assert list(status(parcels).values()).count("sent") == 3
    assert sweep("parcels", QUEUED, send) == SweepResult(7, 0, "done")


def test_a_database_that_is_gone_is_said_once_and_not_by_every_row(parcels: Engine) -> None:
    away = create_engine("postgresql+psycopg://nobody@127.0.0.1:1/nothing", connect_args={"connect_timeout": 1})
    tried: list[int] = []

    def work(parcel: int) -> None:
        tried.append(parcel)
        with away.connect():
            pass

    with capture_logs() as lines, pytest.raises(DBAPIError):
        sweep("parcels", Streamed(QUEUED), work)
    assert tried == [2]
    assert [(line["event"], line["verdict"], line["processed"]) for line in lines] == [("sweep", "cut", 0)]


def test_a_deadlock_and_its_like_are_a_rows_own(parcels: Engine) -> None:
    def work(s: Session, parcel: int) -> None:
        s.execute(text("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40P01'; END $$"))

    with capture_logs():
        assert sweep("parcels", QUEUED, work) == SweepResult(10, 10, "done")


def test_a_streamed_query_holds_no_transaction_open_over_a_row(parcels: Engine) -> None:
    def work(parcel: int) -> None:
        assert database().pool.checkedout() == 0  # type: ignore[attr-defined]

    assert sweep("parcels", Streamed(QUEUED), work) == SweepResult(10, 0, "done")


def test_slow_rows_are_committed_before_their_page_is_through(parcels: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.sweep._COMMIT_AFTER_SECONDS", 0.0)

    def work(s: Session, parcel: int) -> None:
        send(s, parcel)
        assert list(status(parcels).values()).count("sent") == parcel - 2

    assert sweep("parcels", Keyset(QUEUED.statement, by=Parcel.id), work) == SweepResult(10, 0, "done")


def test_two_sweeps_of_locked_rows_take_each_row_once(parcels: Engine) -> None:
    locked = Keyset(QUEUED.statement, by=Parcel.id, rows_a_page=3, locked=True)
    inner: list[int] = []

    def work(s: Session, parcel: int) -> None:
        if parcel == 2:
            sweep("inner", locked, lambda other, found: (inner.append(found), send(other, found)))
        send(s, parcel)

    assert sweep("outer", locked, work).failed == 0
    assert inner == list(range(5, 12)), "the outer's first page was taken as well"


def test_a_row_costs_no_statement_beyond_its_savepoint_and_its_own(parcels: Engine) -> None:
    statements: list[str] = []
    event.listen(database(), "before_cursor_execute", lambda *a: statements.append(a[2]))
    sweep("parcels", QUEUED, send)
    pages = 10 // QUEUED.rows_a_page + 2
    assert len(statements) == 1 + pages + 10 * 3, statements


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads a process's peak in /proc")
_MEMORY = """
import sys
from pathlib import Path
from sqlalchemy import column, func, select, table
from fleet.storage import session
from fleet.storage.keyset import Keyset, Streamed
from fleet.sweep import sweep
rows, savepoints = int(sys.argv[1]), sys.argv[2] == "savepoints"
wide = table("wide", column("id"), column("note"))
of = Keyset(select(wide.c.note).where(wide.c.id <= rows), by=wide.c.id)
assert sweep("wide", of if savepoints else Streamed(of), lambda *_: None).processed == rows
# Not getrusage: what it gives is at least what the parent held when it forked.
print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""


def peak(rows: int, form: str) -> int:
    """The most memory that a process ever had that swept so many rows, in KiB."""
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY, str(rows), form], cwd=ROOT, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


def grown(rows: int, form: str) -> int:
    """How many KiB more so many rows take than three pages of them."""
    return peak(rows, form) - peak(1_500, form)


@pytest.fixture
def wide(request: pytest.FixtureRequest, environment: Environment) -> Iterator[None]:
    with session() as s:
        s.execute(text("CREATE TABLE wide (id bigint PRIMARY KEY, note text NOT NULL)"))
        s.execute(
            text("INSERT INTO wide SELECT n, repeat('x', 200) || n FROM generate_series(1, :rows) n"),
            {"rows": request.param},
        )
    yield
    with session() as s:
        s.execute(text("DROP TABLE wide"))


@linux
@pytest.mark.parametrize("wide", [100_000], indirect=True)
def test_a_hundred_thousand_rows_take_no_more_memory_than_three_pages(wide: None) -> None:
    assert grown(100_000, "streamed") < 4_000
    assert grown(4_000, "savepoints") < 4_000


@linux
@pytest.mark.soak
@pytest.mark.parametrize("wide", [1_000_000], indirect=True)
@pytest.mark.timeout(900)
def test_a_million_rows_take_no_more_memory_than_three_pages(wide: None, capsys: Any) -> None:
    streamed, savepoints = grown(1_000_000, "streamed"), grown(100_000, "savepoints")
    with capsys.disabled():
        print(f"\npeak grew by {streamed} KiB over 1,000,000 rows, by {savepoints} KiB over 100,000 in savepoints")
    assert max(streamed, savepoints) < 4_000
