"""What systemd hears, at a real datagram socket of either kind."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from fleet.clock import clock
from fleet.settings import Settings
from fleet.workers.systemd import Systemd


@pytest.fixture(params=["path", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"@fleet-{uuid.uuid4()}" if request.param == "abstract" else str(tmp_path / "notify")


@pytest.fixture
def manager(address: str) -> Iterator[socket.socket]:
    """The service manager's end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)
        end.settimeout(2)
        yield end


def heard(manager: socket.socket) -> list[str]:
    """Everything that was sent; a datagram to a local socket is there when the sending call returns."""
    said, timeout = [], manager.gettimeout()
    manager.setblocking(False)
    try:
        while True:
            said.append(manager.recv(4096).decode())
    except BlockingIOError:
        return said
    finally:
        manager.settimeout(timeout)


def test_it_says_ready_once(manager: socket.socket, address: str) -> None:
    systemd = Systemd(address)
    systemd.ready()
    systemd.ready()
    assert heard(manager) == ["READY=1"]


def test_a_status_is_sent_when_it_changed_and_its_line_breaks_begin_no_other_word(
    manager: socket.socket, address: str
) -> None:
    systemd = Systemd(address)
    systemd.status("4 children serve")
    systemd.status("4 children serve")
    systemd.status("pump of pid 1\nREADY=1")
    assert heard(manager) == ["STATUS=4 children serve", "STATUS=pump of pid 1 READY=1"]


def test_it_says_that_it_stops_and_how(manager: socket.socket, address: str) -> None:
    Systemd(address).stopping("draining for 30 s")
    assert heard(manager) == ["STOPPING=1\nSTATUS=draining for 30 s"]


def test_the_watchdog_is_fed_at_half_of_its_time(manager: socket.socket, address: str) -> None:
    systemd = Systemd(address, timedelta(seconds=4))
    fed = []
    for tenth in range(61):
        systemd.feed(1000.0 + tenth / 10)
        fed += [tenth for _ in heard(manager)]
    assert fed == [0, 20, 40, 60]


def test_without_a_watchdog_nothing_is_fed(manager: socket.socket, address: str) -> None:
    Systemd(address).feed(1000.0)
    assert heard(manager) == []


def test_a_watchdog_meant_for_this_process_or_for_any_is_fed_and_anothers_is_not(
    manager: socket.socket, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "4000000")
    for pid, feeds in ((str(os.getpid()), True), (None, True), ("1", False)):
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        if pid is not None:
            monkeypatch.setenv("WATCHDOG_PID", pid)
        Systemd.of(Settings.read()).feed(1000.0)
        assert (heard(manager) == ["WATCHDOG=1"]) is feeds, pid


def test_without_a_service_manager_nothing_happens(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.setenv("WATCHDOG_USEC", "4000000")
    systemd = Systemd.of(Settings.read())
    systemd.ready()
    systemd.status("fine")
    systemd.feed(1000.0)
    systemd.stopping("draining")
    assert caplog.records == []
    assert capfd.readouterr() == ("", ""), "where logs are not configured they are printed"


def test_a_word_that_did_not_arrive_is_said_again_at_the_next_call(address: str) -> None:
    systemd = Systemd(address, timedelta(seconds=4))
    systemd.ready()
    systemd.status("fine")
    systemd.feed(1000.0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)
        systemd.ready()
        systemd.status("fine")
        systemd.feed(1000.1)
        assert heard(end) == ["READY=1", "STATUS=fine", "WATCHDOG=1"]


def test_a_manager_that_does_not_read_holds_the_loop_up_for_a_moment_at_most(
    manager: socket.socket, address: str
) -> None:
    systemd = Systemd(address)
    began = clock.monotonic()
    for number in range(400):  # more than the socket takes
        systemd.status(f"turn {number}")
        if clock.monotonic() - began > 0.09:
            break
    assert number < 399, "the socket was never full"
    assert clock.monotonic() - began < 1.0
