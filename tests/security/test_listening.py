"""Nothing listens beyond loopback unless it is told to: every process with its defaults, and what its sockets say."""

from __future__ import annotations

import ipaddress
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.environment import child_path
from tests.security.processes import ROOT, Processes, processes
from tests.waiting import wait_until

LIMIT = 90
SANDBOX = ("books.sandbox.bank", "books.sandbox.model", "books.sandbox.gateway", "books.sandbox.mail")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path, TEST_JOURNAL=str(tmp_path / "journal")) as made:
        yield made


def family(process: psutil.Process, folder: Path) -> list[psutil.Process]:
    """A process, what it started, and what was started with a path of its folder."""
    found = {process, *process.children(recursive=True)}
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if any(str(folder) in word for word in one.cmdline()):
                found.add(one)
    return sorted(found, key=lambda one: one.pid)


def listening(of: list[psutil.Process]) -> dict[str, set[str]]:
    """Name of a process -> the addresses that it takes connections or packets at."""
    found: dict[str, set[str]] = {}
    for one in of:
        with suppress(psutil.Error):
            for socket in one.net_connections(kind="inet"):
                if socket.status == psutil.CONN_LISTEN or (socket.type.name == "SOCK_DGRAM" and not socket.raddr):
                    found.setdefault(one.name(), set()).add(socket.laddr.ip)
    return found


def require_loopback(found: dict[str, set[str]]) -> None:
    beyond = {name: ips for name, ips in found.items() if not all(ipaddress.ip_address(ip).is_loopback for ip in ips)}
    assert beyond == {}


def test_a_whole_fleet_with_its_embedded_servers_listens_on_loopback_alone(running: Processes, tmp_path: Path) -> None:
    up = running.start("up", "--folder", str(tmp_path / "fleet"))
    wait_until(lambda: "`fleet status` shows them" in running.said() or up.poll() is not None, LIMIT)
    logs = tmp_path / "fleet" / "logs"
    wait_until(lambda: sum("metrics=http" in path.read_text() for path in logs.glob("*.log")) == 3, LIMIT)
    found = listening(family(psutil.Process(up.pid), tmp_path))
    assert sum(map(len, found.values())) >= 2, (found, running.said())
    require_loopback(found)


def test_the_console_listens_on_loopback_alone(running: Processes, redis_url: str) -> None:
    console = running.start("console", "--port", "0", FLEET_REDIS_URL=redis_url)
    wait_until(lambda: "console_started" in running.said() or console.poll() is not None, LIMIT)
    found = listening([psutil.Process(console.pid)])
    assert found, running.said()
    require_loopback(found)


@pytest.mark.parametrize("module", SANDBOX)
def test_the_sandbox_listens_on_loopback_alone(module: str, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    process = subprocess.Popen(
        [sys.executable, "-m", module, "--ready-file", str(ready)],
        env={"PYTHONPATH": child_path(ROOT), "PATH": ""},
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, LIMIT)
        found = listening([psutil.Process(process.pid)])
        assert found
        require_loopback(found)
    finally:
        process.kill()
        process.wait()
