"""A server that cannot be used is said in one sentence: unreachable, locked, or too old."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy import create_engine

from fleet.errors import ServerTooOld, ServerUnreachable
from fleet.servers import require_postgres, require_redis
from fleet.storage.engine import psycopg_url


class _Old(socketserver.StreamRequestHandler):
    """Answers INFO as a server of the given version, and refuses every other command, as an old one would HELLO."""

    def handle(self) -> None:
        while line := self.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                size = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(size + 2)[:-2].upper())
            if words[0] == b"INFO":
                text = f"# Server\r\nredis_version:{self.server.version}\r\n".encode()  # type: ignore[attr-defined]
                self.wfile.write(b"$%d\r\n%s\r\n" % (len(text), text))
            else:
                self.wfile.write(b"-ERR unknown command\r\n")


@contextmanager
def redis_of_version(version: str) -> Iterator[redis.Redis]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Old) as server:
        server.daemon_threads = True
        server.version = version  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            with redis.Redis(port=server.server_address[1], protocol=2) as client:
                yield client
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("version", ["5.0.14", "6.2.20", "2.8.0"])
def test_a_redis_that_is_too_old_is_refused_with_its_version_and_the_one_it_needs(version: str) -> None:
    with redis_of_version(version) as client, pytest.raises(ServerTooOld) as raised:
        require_redis(client)
    assert f"is version {version}; Nightshift needs 7.0 or newer." in str(raised.value)


@pytest.mark.parametrize("version", ["7.0.0", "7.4.1", "10.0.0"])
def test_a_redis_that_is_new_enough_is_taken(version: str) -> None:
    with redis_of_version(version) as client:
        require_redis(client)


def test_the_servers_of_the_tests_are_new_enough(redis_client: redis.Redis, database_url: str) -> None:
    require_redis(redis_client)
    engine = create_engine(psycopg_url(database_url))
    require_postgres(engine)
    engine.dispose()


def test_a_redis_behind_a_socket_that_is_not_there_is_named_by_its_path() -> None:
    with (
        redis.Redis(unix_socket_path="/nowhere/redis.sock", retry=Retry(NoBackoff(), 0)) as client,
        pytest.raises(ServerUnreachable) as raised,
    ):
        require_redis(client)
    assert "Redis at /nowhere/redis.sock does not answer" in str(raised.value)


def test_a_database_that_does_not_exist_is_said_in_one_line(database_url: str) -> None:
    engine = create_engine(psycopg_url(database_url).set(database="no_such_database"))
    with pytest.raises(ServerUnreachable, match="no_such_database") as raised:
        require_postgres(engine)
    assert "\n" not in str(raised.value)
