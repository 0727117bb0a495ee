"""A server that answers late, by drips, or never, ends a job at its soft budget, with no raise from outside."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta

import pytest

from books.bank import BankClient
from books.model import ModelClient
from fleet import deadline
from fleet.errors import DeadlineExceeded
from fleet.watchdog import watchdog

SOFT = timedelta(seconds=1)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
Answer = Callable[[socket.socket, threading.Event], None]


def silent(connection: socket.socket, over: threading.Event) -> None:
    over.wait(20)


def head_then_silent(connection: socket.socket, over: threading.Event) -> None:
    over.wait(0.7)
    connection.sendall(HEAD)
    over.wait(20)


def body_then_silent(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(HEAD + b"content-length: 100\r\n\r\n")
    over.wait(0.7)
    connection.sendall(b'{"a"')
    over.wait(20)


def dripping(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(HEAD + b"content-length: 100000\r\n\r\n")
    while not over.wait(0.02):
        connection.sendall(b" ")


@pytest.fixture
def served() -> Iterator[Callable[[Answer], str]]:
    """The URL of a server that reads requests and answers them so."""
    over = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def serve(answer: Answer) -> str:
        def connection_by_connection() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    connection.recv(65_536)
                    with connection, suppress(OSError):
                        answer(connection, over)

        threading.Thread(target=connection_by_connection, daemon=True).start()
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    yield serve
    over.set()
    listening.close()


def ask_model(url: str) -> None:
    client = ModelClient(url, "a key", "a model", timeout=timedelta(seconds=20))
    with suppress(Exception):
        client.categorize("text", 0, "EUR", ["a"], run="r", step="s")


def ask_bank(url: str) -> None:
    client = BankClient(url, "id", "key", timeout=timedelta(seconds=20))
    with suppress(Exception):
        client.account("x")


@pytest.mark.parametrize("ask", [ask_model, ask_bank])
@pytest.mark.parametrize("answer", [silent, head_then_silent, body_then_silent, dripping])
def test_a_call_ends_with_the_soft_budget_however_the_server_answers(
    served: Callable[[Answer], str],
    answer: Answer,
    ask: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = served(answer)
    ask("http://127.0.0.1:9")  # loads the SDK before the clock starts
    monkeypatch.setattr(watchdog, "raised", False)
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        deadline.run_within(SOFT, ask, url)
    assert 0.95 <= time.monotonic() - started < 10
    assert not deadline.raised()


def test_outside_a_job_the_clients_own_timeout_holds(served: Callable[[Answer], str]) -> None:
    client = BankClient(served(silent), "id", "key", timeout=timedelta(seconds=0.2))
    started = time.monotonic()
    with pytest.raises(Exception, match="ReadTimeout"):
        client.account("x")
    assert time.monotonic() - started < 15
