"""A PostgreSQL that is gone uses up no attempt; what Redis, the world outside or a row has to say does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import dramatiq
import pytest
import redis
from dramatiq import Message
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from structlog.testing import capture_logs

from fleet import queue, unspent, wire
from fleet.broker import dead, keys
from fleet.broker.broker import NotAccepted
from fleet.clock import clock
from fleet.errors import RetryLater
from fleet.gone import postgresql_gone
from fleet.storage import session
from fleet.storage.engine import psycopg_url
from tests.middleware.slot_rows import configure, refused_port, said
from tests.middleware.test_retries import NEVER, Tries
from tests.waiting import wait_until


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The n-th wait is n tenths of a second."""
    monkeypatch.setattr(unspent, "PAUSE", timedelta(milliseconds=100))


class Asks(Tries):
    """A job that asks PostgreSQL."""

    def job(self) -> None:
        try:
            with session() as s:
                s.execute(text("SELECT 1"))
        except DBAPIError as error:
            self._error = error
            super().job()


def test_while_postgresql_refuses_a_job_comes_back_and_has_all_its_attempts(
    recorded: Any, migrated_url: str, monkeypatch: pytest.MonkeyPatch, soon: None, counted: Callable[..., float]
) -> None:
    tries = Asks()
    asks = queue("work").actor(tries.job)
    with refused_port() as url, capture_logs() as logs:
        configure(recorded, monkeypatch, url)
        recorded.work()
        asks.send()
        wait_until(lambda: len(tries.at) == 6)  # twice the lane's three attempts
        configure(recorded, monkeypatch, migrated_url)
        recorded.until_idle()
    assert recorded.dead() == []
    assert all(gap >= 0.08 * number for number, gap in enumerate(tries.gaps, 1)), f"they grow: {tries.gaps}"
    lines = said(logs, "job_awaits_postgresql")
    assert [line["times"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert all(line["log_level"] == "warning" and "OperationalError" in line["error"] for line in lines)
    assert not said(logs, "job_retries"), "one line a failure"
    assert counted("fleet_messages_total", queue="work", actor="job", outcome="retried") == 6


def test_what_outlasts_the_outages_that_are_borne_uses_up_its_attempts_and_is_a_dead_letter(
    recorded: Any, monkeypatch: pytest.MonkeyPatch, soon: None
) -> None:
    monkeypatch.setattr(unspent, "MOST_OUTAGES", 4)
    tries = Asks()
    asks = queue("work").actor(tries.job)
    with refused_port() as url:
        configure(recorded, monkeypatch, url)
        recorded.work()
        asks.send()
        recorded.until_idle()
    assert len(tries.at) == 4 + 3
    (letter,) = recorded.dead()
    assert (letter.options["retries"], letter.options[unspent.OUTAGES]) == (2, 4)
    recorded.stop()
    places = [one.place for one in dead.letters(recorded.broker, ["work"])]
    assert list(dead.requeue(recorded.broker, places, a_second=1_000)) == ["moved"]
    (again,) = recorded.broker.client.hvals(keys.bodies(recorded.broker.namespace, "work"))
    assert unspent.OUTAGES not in Message.decode(again).options, "it begins anew"


def test_a_message_that_expires_meanwhile_does_not_run_again(
    recorded: Any, monkeypatch: pytest.MonkeyPatch, soon: None, counted: Callable[..., float]
) -> None:
    tries = Asks()
    asks = queue("work").actor(tries.job)
    ends = clock.now() + timedelta(seconds=1)
    with refused_port() as url:
        configure(recorded, monkeypatch, url)
        recorded.work()
        asks.send_with_options(**{wire.EXPIRES_AT: wire.to_ms(ends)})
        recorded.until_idle()
    assert tries.at and recorded.dead() == []
    assert counted("fleet_messages_total", queue="work", actor="job", outcome="expired") == 1


@pytest.mark.parametrize("once", [{"retry": NEVER}, {"max_retries": 0}, {"retry_when": lambda *_: False}])
def test_a_job_that_is_to_be_tried_once_is_tried_once(
    recorded: Any, monkeypatch: pytest.MonkeyPatch, soon: None, once: dict[str, Any]
) -> None:
    tries = Asks()
    asks = queue("work").actor(**once)(tries.job)
    with refused_port() as url:
        configure(recorded, monkeypatch, url)
        recorded.work()
        asks.send()
        recorded.until_idle()
    assert len(tries.at) == 1 and len(recorded.dead()) == 1


def raised(url: str, statement: str = "SELECT 1") -> DBAPIError:
    """What SQLAlchemy says of a statement."""
    engine = create_engine(psycopg_url(url))
    try:
        with engine.connect() as connection:
            connection.execute(text(statement))
    except DBAPIError as error:
        return error
    finally:
        engine.dispose()
    raise AssertionError(f"nothing was raised by {statement}")


def test_what_redis_the_world_outside_or_a_row_says_uses_up_attempts(
    house: Any, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [
        redis.ConnectionError("Redis is gone"),
        redis.TimeoutError("Redis does not answer"),
        NotAccepted("Redis did not answer"),
        ConnectionRefusedError("the bank is gone"),
        TimeoutError("the model does not answer"),
        PoolTimeout("all connections are lent"),
        raised(migrated_url, "SELECT 1 / 0"),
        raised(migrated_url, "SELECT * FROM nothing"),
    ]
    tries = [Tries(error) for error in errors]
    for number, one in enumerate(tries):
        queue("work").actor(name=f"job{number}")(one.job).send()
    house.work()
    house.until_idle()
    assert [len(one.at) for one in tries] == [3] * len(errors)
    assert all(unspent.OUTAGES not in letter.options for letter in house.dead())


def test_what_says_itself_when_it_comes_again_does_so_also_where_postgresql_was_the_cause(house: Any) -> None:
    with refused_port() as url:
        gone = raised(url)
    later, stock = RetryLater("429", timedelta(milliseconds=20)), dramatiq.Retry("again", delay=20)
    later.__cause__ = stock.__cause__ = gone
    tries = [Tries(later), Tries(stock)]
    for number, one in enumerate(tries):
        queue("work").actor(name=f"job{number}")(one.job).send()
    house.work()
    house.until_idle()
    assert [len(one.at) for one in tries] == [3, 3]


def test_the_server_that_an_error_names_first_is_the_one_that_is_gone() -> None:
    with refused_port() as url:
        gone = raised(url)
    wrapped, redis_first = ValueError("not taken"), redis.ConnectionError("Redis is gone")
    wrapped.__cause__ = redis_first.__cause__ = gone
    assert postgresql_gone(gone) and postgresql_gone(wrapped) and not postgresql_gone(redis_first)


@pytest.mark.parametrize(
    ("statement", "is_gone"),
    [
        ("SELECT pg_terminate_backend(pg_backend_pid())", True),
        ("SET idle_in_transaction_session_timeout = 20", False),
    ],
)
def test_a_session_that_the_server_ended_for_what_the_job_did_is_no_server_that_is_gone(
    migrated_url: str, statement: str, is_gone: bool
) -> None:
    engine = create_engine(psycopg_url(migrated_url))
    with pytest.raises(DBAPIError) as found, engine.connect() as connection:
        connection.execute(text(statement))
        wait_until(lambda: _ended(connection), 10)
        connection.execute(text("SELECT 1"))
    engine.dispose()
    assert postgresql_gone(found.value) is is_gone, repr(found.value.orig)


def _ended(connection: Any) -> bool:
    """Whether the server closed it: there is something to read that nobody asked for."""
    import select

    return bool(select.select([connection.connection.driver_connection.pgconn.socket], [], [], 0)[0])


def test_a_process_without_sqlalchemy_judges_a_failure_without_it() -> None:
    asks = (
        "import sys; from fleet import unspent; "
        "assert not unspent.awaits_postgresql({}, ConnectionError('the bank is gone')); "
        "assert 'sqlalchemy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", asks], check=True, timeout=30)


def test_the_waits_in_all_outlast_a_failover_of_minutes() -> None:
    lasts = sum((unspent.pause(times) for times in range(1, unspent.MOST_OUTAGES + 1)), timedelta(0))
    assert timedelta(minutes=4) < lasts < timedelta(minutes=8)
    assert unspent.pause(unspent.MOST_OUTAGES) * 1.2 <= timedelta(seconds=30)
