"""The process's engine: one pool for all threads, and connections that notice a server that is gone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, make_url, text
from sqlalchemy.exc import DBAPIError

from fleet.gone import server_gone
from fleet.storage import database
from fleet.storage import engine as storage
from fleet.storage.engine import dedicated, psycopg_url, unpooled
from fleet.testing import forget_settings
from tests.conftest import ROOT, Environment
from tests.environment import child_path
from tests.waiting import wait_until


def test_threads_that_come_together_at_first_use_share_one_engine(environment: object) -> None:
    together = threading.Barrier(64)

    def first_use(_: int) -> Engine:
        together.wait()
        return database()

    for _ in range(5):
        storage.database.cache_clear()
        with ThreadPoolExecutor(64) as threads:
            assert len({id(engine) for engine in list(threads.map(first_use, range(64)))}) == 1


@contextmanager
def over_tcp(url: str) -> Iterator[str]:
    """The URL of the same database behind a port of this machine, for one connection."""
    inner = make_url(url)
    folder = str(inner.query["host"])

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        while read := source.recv(65_536):
            target.sendall(read)
        target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        outside, _ = listening.accept()
        with outside, socket.socket(socket.AF_UNIX) as inside:
            inside.connect(f"{folder}/.s.PGSQL.5432")
            back = threading.Thread(target=pass_on, args=(inside, outside))
            back.start()
            pass_on(outside, inside)
            back.join()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=serve)
        server.start()
        yield inner.set(host="127.0.0.1", port=listening.getsockname()[1], query={}).render_as_string(False)
        server.join(5)


@pytest.mark.parametrize("pooled", [True, False])
def test_a_connection_over_tcp_notices_within_thirty_seconds_that_its_server_is_gone(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, pooled: bool
) -> None:
    if not str(psycopg_url(environment.database_url).query.get("host", "")).startswith("/"):
        pytest.skip("the configured PostgreSQL has no socket of this machine")
    with over_tcp(environment.database_url) as url:
        monkeypatch.setenv("FLEET_DATABASE_URL", url)
        forget_settings()
        engine = database() if pooled else unpooled(url)
        with engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            with socket.socket(fileno=os.dup(driver.fileno())) as seen:
                assert seen.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                names = (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                unacknowledged, idle, between, probes = (seen.getsockopt(socket.IPPROTO_TCP, name) for name in names)
        assert unacknowledged == 30_000
        assert idle + between * probes <= 30
        engine.dispose()


@pytest.mark.parametrize("how", ["pooled", "unpooled", "dedicated"])
def test_a_server_is_asked_to_notice_that_a_process_is_gone(environment: Environment, how: str) -> None:
    asked = "SELECT name FROM pg_settings WHERE name ~ '^tcp_|^client_connection_check' AND source = 'session'"
    engine = unpooled(environment.database_url) if how == "unpooled" else database()
    if how == "dedicated":
        with dedicated(engine, "test") as connection:
            names = connection.execute(asked).fetchall()
    else:
        with engine.connect() as first:
            first.exec_driver_sql("SELECT 1")
            first.rollback()  # what is set in a transaction goes with it
            names = list(first.exec_driver_sql(asked).fetchall())
    assert len(names) == 5


_WAITS_FOR_A_LOCK = """
from fleet.storage import session
from sqlalchemy import text
with session() as s:
    print(s.scalar(text("SELECT pg_backend_pid()")), flush=True)
    s.execute(text("SELECT pg_advisory_xact_lock(4711)"))
"""


def test_a_server_that_lets_nobody_set_these_is_connected_to_all_the_same(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_NOTICED", "SET block_size = 1")  # which no server lets anybody set
    with unpooled(environment.database_url).connect() as connection:
        assert connection.exec_driver_sql("SHOW client_connection_check_interval").scalar_one() == "10s"


def test_a_killed_process_leaves_no_backend_in_the_queue_for_a_lock(environment: Environment) -> None:
    engine = unpooled(environment.database_url)

    def waits_for(pid: int) -> list[str]:
        """By a connection of its own: what is asked of the statistics stays as it was within a transaction."""
        asked = text("SELECT wait_event_type FROM pg_stat_activity WHERE pid = :pid")
        with engine.connect() as connection:
            return list(connection.execute(asked, {"pid": pid}).scalars())

    with engine.connect() as holder:
        holder.execute(text("SELECT pg_advisory_xact_lock(4711)"))
        given = {**os.environ, "PYTHONPATH": child_path(ROOT)}
        waiting = subprocess.Popen(
            [sys.executable, "-c", _WAITS_FOR_A_LOCK], env=given, stdout=subprocess.PIPE, text=True
        )
        assert waiting.stdout is not None
        pid = int(waiting.stdout.readline())
        wait_until(lambda: waits_for(pid) == ["Lock"], 10)
        waiting.kill()
        waiting.wait()
        waiting.stdout.close()
        wait_until(lambda: waits_for(pid) == [], 20)


def test_a_server_that_only_reads_is_gone_and_its_connections_end(environment: Environment) -> None:
    engine = database()
    with engine.connect() as connection:
        connection.execute(text("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"))
        connection.commit()
        with pytest.raises(DBAPIError, match="read-only transaction") as refused:
            connection.execute(text("CREATE TABLE never (id integer)"))
    assert server_gone(refused.value)
    with engine.connect() as connection:  # a new one, which has not been told to read only
        assert connection.execute(text("SHOW transaction_read_only")).scalar_one() == "off"
