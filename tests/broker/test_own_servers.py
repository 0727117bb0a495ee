"""The servers that tests start themselves: at ports of their own, and heard of when they end."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.broker.conftest import OwnRedis
from tests.ports import PORTS, free_port, share


def test_a_port_is_given_once_and_lies_below_those_of_connections() -> None:
    given = [free_port() for _ in range(100)]
    assert len(set(given)) == len(given)
    assert set(given) <= set(share()) <= set(range(1_024, 30_000))


def test_two_workers_share_no_port() -> None:
    shares = [share({"PYTEST_XDIST_WORKER": f"gw{n}", "PYTEST_XDIST_WORKER_COUNT": "2"}) for n in range(2)]
    assert not set(shares[0]) & set(shares[1])
    assert len(shares[0]) == len(shares[1]) == len(PORTS) // 2


def test_a_port_at_which_somebody_listens_is_passed_over() -> None:
    ahead = free_port() + 1
    with socket.create_server(("127.0.0.1", ahead)):
        assert free_port() != ahead


def test_a_server_that_ends_before_it_serves_is_said_at_once(tmp_path: Path) -> None:
    server = OwnRedis(tmp_path)
    with socket.create_server(("127.0.0.1", server.port)):
        with pytest.raises(AssertionError, match=f"Valkey at port {server.port} ended with code 1"):
            server.start()
        server.stop()
