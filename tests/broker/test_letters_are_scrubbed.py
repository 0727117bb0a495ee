"""What a dead letter keeps of an exception shows no key, no argument beside its seal, and no body of bytes."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import dramatiq
import httpx
import pytest
from cryptography.fernet import Fernet
from structlog.testing import capture_logs
from typer.testing import CliRunner

from fleet import cli_dead
from fleet.payloads import PayloadEncoder
from tests.broker.station import QUEUE, Station
from tests.waiting import wait_until

KEY = "sk-marked-7Qx"
Run = Callable[..., str]


@pytest.fixture
def run(station: Station, monkeypatch: pytest.MonkeyPatch) -> Run:
    """What `fleet dead` prints over the station's queue."""
    monkeypatch.setattr(cli_dead, "process_broker", lambda: station.broker)
    app: Any = SimpleNamespace(lanes=[SimpleNamespace(queues=(QUEUE,))], actor=lambda name: None)
    return lambda *words: str(CliRunner().invoke(cli_dead.cli, list(words), obj=lambda: app).output)


@pytest.fixture
def sealed() -> Iterator[None]:
    """Whatever is sent carries its arguments sealed."""
    before, key = dramatiq.get_encoder(), Fernet.generate_key().decode()
    dramatiq.set_encoder(PayloadEncoder(lambda: [key]))
    yield
    dramatiq.set_encoder(before)


def letter_of(station: Station) -> tuple[str, dict[str, Any]]:
    """The one letter's id and its details."""
    ((id, kept),) = wait_until(station.letters).items()
    return id.decode(), json.loads(kept)


def test_a_key_with_a_line_end_that_http_refuses_stands_in_no_letter(station: Station, run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"

        def ask() -> None:
            httpx.get(url, headers={"authorization": f"Bearer {KEY}\n"})

        station.actor(ask, max_retries=0).send()
        station.work(threads=1)
        id, details = letter_of(station)
    assert "7Qx" not in str(station.letters()) + run("show", id) + run("list")
    assert "Illegal header value b'[removed]" in details["exception"] and "LocalProtocolError" in details["exception"]
    trace = details["traceback"]
    assert ", in ask\n" in trace and 'httpx.get(url, headers={"authorization"' in trace
    assert trace.endswith("\nhttpx.LocalProtocolError: Illegal header value b'[removed]\\n'\n")


def test_an_argument_that_is_sealed_does_not_stand_beside_it_in_the_open(station: Station, sealed: None) -> None:
    def pay(text: str) -> None:
        try:
            raise LookupError(f"unknown: {text}")
        except LookupError as error:
            raise ValueError(f"no {text}") from error

    station.actor(pay, max_retries=0).send("Erika Musterfrau")
    station.work(threads=1)
    _, details = letter_of(station)
    assert details["exception"] == "ValueError('no [removed]')"
    assert "Erika" not in str(station.letters())
    assert "LookupError: unknown: [removed]" in details["traceback"] and ", in pay\n" in details["traceback"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"note": "Erika war hier", "args', "JSONDecodeError("),
        (
            b'{"note": "Erika war hier \xff"}',
            "UnicodeDecodeError(\"'utf-8' codec can't decode byte 0xff in position 25",
        ),
        (b'{"note": "Erika war hier"}', "KeyError('args')"),
    ],
)
def test_an_unreadable_message_is_told_in_its_decoders_words_without_its_body(
    station: Station, body: bytes, words: str
) -> None:
    station.actor(print, actor_name="note")
    station.broker.accept([(QUEUE, "odd", body)], None)
    with capture_logs() as lines:
        station.work(threads=1)
        _, details = letter_of(station)
    (line,) = [line for line in lines if line["event"] == "message_unreadable"]
    assert details["exception"].startswith("DecodeError(") and words in details["exception"]
    assert line["error"] == details["exception"]
    assert "Erika" not in str(station.letters()) + str(lines)


def test_an_exception_that_cannot_be_looked_at_ends_its_message_all_the_same(station: Station) -> None:
    class Shy(Exception):
        def __repr__(self) -> str:
            raise LookupError("Erika war hier")

        __str__ = __repr__

    def ask() -> None:
        raise Shy

    station.actor(ask, max_retries=0).send()
    station.work(threads=1)
    _, details = letter_of(station)
    assert details["exception"] == "Shy, whose repr raises LookupError"
    assert ", in ask\n" in details["traceback"] and "Erika" not in str(details)
