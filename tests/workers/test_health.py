"""`/metrics`, `/healthz` and `/readyz` over real sockets, with clients that dawdle."""

from __future__ import annotations

import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

from fleet import metrics
from fleet.errors import AddressUnusable
from fleet.workers import health
from tests.ports import free_port
from tests.waiting import wait_until


def serve(
    *,
    healthy: Callable[[], str | None] = lambda: None,
    ready: Callable[[], str | None] = lambda: None,
    registry: CollectorRegistry | None = None,
    host: str = "127.0.0.1",
) -> str:
    """The address without its path."""
    where = metrics.serve(host, registry or CollectorRegistry(), healthy=healthy, ready=ready)
    return where.removesuffix("/metrics")


def get(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def connected(address: str) -> socket.socket:
    parts = urlsplit(address)
    assert parts.hostname and parts.port
    return socket.create_connection((parts.hostname, parts.port), timeout=20)


def closed_by_the_server(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_all_well_is_ok_on_both_pages() -> None:
    address = serve()
    assert get(f"{address}/healthz") == (200, "ok\n")
    assert get(f"{address}/readyz") == (200, "ok\n")


def test_what_is_wrong_is_said_with_503_on_the_page_that_it_concerns_and_only_as_long_as_it_is() -> None:
    wrong = ["pump of pid 123 last turned 14 s ago"]
    address = serve(ready=lambda: wrong[0] if wrong else None)
    assert get(f"{address}/readyz") == (503, "pump of pid 123 last turned 14 s ago\n")
    assert get(f"{address}/healthz") == (200, "ok\n")
    wrong.clear()
    assert get(f"{address}/readyz?verbose=1") == (200, "ok\n")


def test_a_check_that_raises_is_a_503_that_says_so() -> None:
    def check() -> str | None:
        raise ValueError("operation forbidden on released memoryview object")

    code, text = get(f"{serve(healthy=check)}/healthz")
    assert code == 503
    assert "the check itself failed" in text and "released memoryview" in text


def test_metrics_are_those_of_the_registry() -> None:
    registry = CollectorRegistry()
    Counter("letters", "A test's", registry=registry).inc(3)
    code, text = get(f"{serve(registry=registry)}/metrics")
    assert code == 200
    assert "letters_total 3.0" in text


@pytest.mark.parametrize("path", ["/", "/metricsx", "/metrics/", "/healthz/x", "/favicon.ico"])
def test_any_other_path_is_not_found(path: str) -> None:
    code, text = get(serve() + path)
    assert code == 404
    assert "/readyz" in text


def test_clients_that_say_nothing_delay_nobody_and_are_cut_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_CONNECTION_SECONDS", 10.0)
    address = serve()
    began = time.monotonic()
    silent = [connected(address) for _ in range(40)]
    silent[0].sendall(b"GET /healthz HT")
    assert get(f"{address}/healthz") == (200, "ok\n")
    assert time.monotonic() - began < 8, "a client waited for another"
    for client in silent:
        wait_until(lambda client=client: closed_by_the_server(client), 30)
        client.close()


def test_a_client_that_sends_a_byte_now_and_then_is_cut_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_CONNECTION_SECONDS", 1.0)
    client = connected(serve())

    def cut() -> bool:
        try:
            client.setblocking(True)
            client.sendall(b"x")
        except ConnectionError:
            return True
        return closed_by_the_server(client)

    wait_until(cut, 30)
    client.close()


def test_more_silent_clients_than_it_takes_push_out_the_oldest_and_not_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "_MOST_CONNECTIONS", 4)
    monkeypatch.setattr(health, "_CONNECTION_SECONDS", 60.0)  # none is cut for its silence
    address, before = serve(), threading.active_count()
    silent = [connected(address) for _ in range(30)]
    assert get(f"{address}/healthz") == (200, "ok\n")
    wait_until(lambda: threading.active_count() - before <= 4, 30)
    assert closed_by_the_server(silent[0])
    assert not closed_by_the_server(silent[-1])
    for client in silent:
        client.close()


def test_a_scrape_that_takes_long_does_not_delay_a_probe() -> None:
    registry, gate, asked = CollectorRegistry(), threading.Event(), threading.Event()

    def slow() -> float:
        asked.set()
        gate.wait(10)
        return 1.0

    Gauge("slow", "A test's", registry=registry).set_function(slow)
    address = serve(registry=registry)
    scrape = threading.Thread(target=get, args=(f"{address}/metrics",))
    scrape.start()
    assert asked.wait(5)
    assert get(f"{address}/healthz") == (200, "ok\n")
    assert scrape.is_alive()
    gate.set()
    scrape.join(5)


def test_a_port_that_is_taken_is_named_with_what_to_do() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(AddressUnusable, match=rf"'127.0.0.1', port {port}, .*already in use.*FLEET_METRICS_PORT"):
            metrics.serve("127.0.0.1", CollectorRegistry(), port=port)


def test_a_host_that_is_none_is_named() -> None:
    with pytest.raises(AddressUnusable, match=r"'999\.0\.0\.1', port any"):
        metrics.serve("999.0.0.1", CollectorRegistry())


def test_a_fixed_port_is_the_one_it_serves_on() -> None:
    port = free_port()
    assert metrics.serve("127.0.0.1", CollectorRegistry(), port=port) == f"http://127.0.0.1:{port}/metrics"
    assert get(f"http://127.0.0.1:{port}/healthz") == (200, "ok\n")


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 in this build")
def test_an_address_of_version_6_is_written_as_a_url_needs_it() -> None:
    try:
        address = serve(host="::1")
    except AddressUnusable:
        pytest.skip("this machine has no IPv6 loopback")
    assert address.startswith("http://[::1]:")
    assert get(f"{address}/healthz") == (200, "ok\n")
