"""A row is one delivery's until its message comes again or its lease lapses; whoever lost it changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from sqlalchemy import Engine, create_engine, func, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from fleet import deadline
from fleet.storage.engine import psycopg_url
from fleet.storage.leases import Lease, claim, finish, finish_lost, renew
from tests.fleet.shields import while_counting
from tests.waiting import wait_until

MINUTE = timedelta(minutes=1)


class Base(DeclarativeBase): ...


class Parcel(Lease, Base):
    __tablename__ = "parcels"
    id: Mapped[int] = mapped_column(primary_key=True)
    note: Mapped[str | None]


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """One parcel, queued."""
    made = create_engine(psycopg_url(database_url))
    Base.metadata.drop_all(made)
    Base.metadata.create_all(made)
    with Session(made) as s, s.begin():
        s.add(Parcel(id=1, status="queued"))
    yield made
    made.dispose()


@pytest.fixture
def stale() -> Callable[[], float]:
    """How many late writes were counted since the test began."""
    from prometheus_client import REGISTRY

    def counted() -> float:
        return REGISTRY.get_sample_value("fleet_stale_writes_total", {"table": "parcels"}) or 0.0

    before = counted()
    return lambda: counted() - before


def take(engine: Engine, token: str, message: str = "", lease: timedelta = MINUTE) -> Parcel | None:
    """For a delivery of a message; of one that has no other where none is named."""
    with Session(engine, expire_on_commit=False) as s, s.begin():
        return claim(s, Parcel, 1, message=message or token, token=token, lease=lease, claimable=("queued", "failed"))


def end(engine: Engine, token: str, status: str = "done", **values: object) -> bool:
    with Session(engine) as s, s.begin():
        return finish(s, Parcel, 1, token=token, status=status, outcome="It is delivered.", **values)


def row(engine: Engine) -> Parcel:
    with Session(engine) as s:
        return s.get_one(Parcel, 1)


def lapse(engine: Engine) -> None:
    with Session(engine) as s, s.begin():
        s.execute(update(Parcel).values(lease_until=func.now() - timedelta(seconds=1)))


def test_a_queued_row_is_taken_and_says_by_whom_and_until_when(engine: Engine) -> None:
    taken = take(engine, "a")
    assert taken is not None and taken.started_at is not None and taken.lease_until is not None
    assert (taken.status, taken.lease_token, taken.attempts) == ("running", "a", 1)
    assert taken.lease_until - taken.started_at == MINUTE


def test_a_row_in_other_hands_is_not_taken(engine: Engine) -> None:
    take(engine, "a")
    assert take(engine, "b") is None
    assert row(engine).lease_token == "a"
    assert row(engine).attempts == 1


def test_the_same_message_delivered_again_takes_its_row_over_at_once(engine: Engine) -> None:
    assert take(engine, "first", "a") is not None
    again = take(engine, "second", "a")
    assert again is not None and (again.lease_token, again.lease_message, again.attempts) == ("second", "a", 2)


def test_of_two_deliveries_of_one_message_only_the_later_can_write(engine: Engine, stale: Callable[[], float]) -> None:
    take(engine, "zombie", "a")
    take(engine, "heir", "a")
    assert end(engine, "zombie", note="from beyond") is False
    assert (row(engine).status, row(engine).lease_token, row(engine).note) == ("running", "heir", None)
    with Session(engine) as s, s.begin():
        assert renew(s, Parcel, 1, token="zombie", lease=MINUTE) is False
    assert stale() == 2
    assert end(engine, "heir") is True
    assert end(engine, "zombie", status="failed") is False
    assert (row(engine).status, stale()) == ("done", 3)


def lost(engine: Engine, message: str, token: str | None = None) -> bool:
    with Session(engine) as s, s.begin():
        return finish_lost(s, Parcel, 1, message=message, token=token, status="failed", outcome="It fell off.")


def test_a_lost_job_is_ended_whichever_delivery_of_it_held_the_row_and_nobody_elses(
    engine: Engine, stale: Callable[[], float]
) -> None:
    take(engine, "first", "a")
    assert lost(engine, "b") is False
    assert lost(engine, "a") is True
    assert (row(engine).status, row(engine).outcome, row(engine).lease_until) == ("failed", "It fell off.", None)
    assert lost(engine, "a") is False
    assert stale() == 0


def test_a_delivery_that_was_cut_off_does_not_end_the_next_ones_row_and_that_is_counted(
    engine: Engine, stale: Callable[[], float]
) -> None:
    take(engine, "zombie", "a")
    take(engine, "heir", "a")
    assert lost(engine, "a", "zombie") is False
    assert (row(engine).status, stale()) == ("running", 1)
    assert lost(engine, "a", "heir") is True
    assert lost(engine, "a", "heir") is False
    assert stale() == 1, "a row that has ended is no late write's"


def test_a_lapsed_lease_may_be_taken_by_anybody(engine: Engine) -> None:
    take(engine, "a")
    lapse(engine)
    taken = take(engine, "b")
    assert taken is not None and (taken.lease_token, taken.attempts) == ("b", 2)


def test_the_late_end_of_a_worker_that_lost_its_row_changes_nothing(engine: Engine) -> None:
    take(engine, "zombie")
    lapse(engine)
    take(engine, "heir")
    assert end(engine, "zombie", note="from beyond") is False
    assert (row(engine).status, row(engine).lease_token, row(engine).note) == ("running", "heir", None)
    assert end(engine, "heir") is True
    assert end(engine, "zombie", status="failed") is False
    assert (row(engine).status, row(engine).outcome) == ("done", "It is delivered.")


def test_a_row_ends_once_even_for_its_owner(engine: Engine) -> None:
    take(engine, "a")
    assert end(engine, "a", note="first") is True
    assert end(engine, "a", note="second") is False
    assert row(engine).note == "first"
    assert row(engine).finished_at is not None and row(engine).lease_until is None


def test_a_done_row_is_not_taken_again_by_its_own_message(engine: Engine) -> None:
    take(engine, "a")
    end(engine, "a")
    assert take(engine, "a") is None


def test_a_row_handed_back_is_taken_again_and_its_old_outcome_is_gone(engine: Engine) -> None:
    take(engine, "a")
    end(engine, "a", status="queued")
    taken = take(engine, "b")
    assert taken is not None and (taken.outcome, taken.finished_at) == (None, None)


def test_a_lease_is_renewed_by_its_owner_alone(engine: Engine) -> None:
    take(engine, "a", lease=timedelta(seconds=1))
    with Session(engine) as s, s.begin():
        assert renew(s, Parcel, 1, token="b", lease=MINUTE) is False
        assert renew(s, Parcel, 1, token="a", lease=MINUTE) is True
    assert take(engine, "b") is None
    lapse(engine)
    take(engine, "b")
    with Session(engine) as s, s.begin():
        assert renew(s, Parcel, 1, token="a", lease=MINUTE) is False


def test_a_row_that_says_running_without_a_lease_may_be_taken_by_anybody(engine: Engine) -> None:
    with Session(engine) as s, s.begin():
        s.execute(update(Parcel).values(status="running"))
    taken = take(engine, "a")
    assert taken is not None and (taken.status, taken.lease_token) == ("running", "a")


def test_a_claim_may_have_a_condition_and_write_more(engine: Engine) -> None:
    def if_noted(note: str | None) -> Parcel | None:
        with Session(engine, expire_on_commit=False) as s, s.begin():
            mine = {"message": "a", "token": "a", "lease": MINUTE, "claimable": ("queued",)}
            return claim(s, Parcel, 1, only=Parcel.note.is_not_distinct_from(note), **mine, note="fragile")

    assert if_noted("fragile") is None
    assert row(engine).status == "queued"
    taken = if_noted(None)
    assert taken is not None and taken.note == "fragile"


def test_a_row_that_is_not_there_is_none(engine: Engine) -> None:
    with Session(engine) as s, s.begin():
        assert claim(s, Parcel, 2, message="a", token="a", lease=MINUTE, claimable=("queued",)) is None
        assert finish(s, Parcel, 2, token="a", status="done", outcome=None) is False


def test_of_two_that_claim_at_once_one_gets_the_row(engine: Engine) -> None:
    answers: list[Parcel | None] = []
    with Session(engine) as first:
        assert claim(first, Parcel, 1, message="a", token="a", lease=MINUTE, claimable=("queued",)) is not None
        second = threading.Thread(target=lambda: answers.append(take(engine, "b")))
        second.start()

        def waits() -> bool:
            with engine.connect() as connection:
                return bool(connection.exec_driver_sql("SELECT count(*) FROM pg_locks WHERE NOT granted").scalar())

        wait_until(waits)
        first.commit()
    second.join(10)
    assert answers == [None]
    assert row(engine).lease_token == "a"


def test_a_claim_shows_what_the_database_holds_and_not_what_the_session_remembers(engine: Engine) -> None:
    with Session(engine) as s, s.begin():
        remembered = s.get_one(Parcel, 1)
        taken = claim(s, Parcel, 1, message="a", token="a", lease=MINUTE, claimable=("queued",))
        assert taken is remembered
        assert remembered.status == "running"


def test_a_late_write_is_counted_where_no_deadline_strikes(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def body() -> None:
        with Session(engine) as s:
            assert not finish(s, Parcel, 1, token="of a worker that lost it", status="delivered", outcome=None)

    shields = while_counting(monkeypatch)
    deadline.run_within(MINUTE, body)
    assert shields == [1]
