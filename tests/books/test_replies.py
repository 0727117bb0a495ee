"""A compressed or too large reply is given up as what each client calls an unusable answer, in little memory."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from books import replies
from books.bank import BankAnswerInvalid, BankClient
from books.gateway import GatewayClient
from books.model import ModelAnswerInvalid, ModelClient
from books.outside.answers import Receipt, Unclear
from books.replies import LARGEST_REPLY
from fleet.errors import FleetError
from tests.books.conftest import Answer, ScriptedWorld

MUCH = 64 * 1024 * 1024
LITTLE = 3 * LARGEST_REPLY


def ask_bank(world: ScriptedWorld) -> object:
    client = BankClient(world.url, "id", "key")
    try:
        return client.balances("a")
    finally:
        client.close()


def ask_model(world: ScriptedWorld) -> object:
    client = ModelClient(world.url, "a key", "m")
    try:
        return client.categorize("coffee", -1234, "EUR", ["Office"], run="r", step="s")
    finally:
        client.close()


def send_to_gateway(world: ScriptedWorld) -> object:
    client = GatewayClient(world.url, "key", "/v1/charges")
    try:
        return client.send("k", {"amount": 1})
    finally:
        client.close()


def ask_gateway(world: ScriptedWorld) -> object:
    client = GatewayClient(world.url, "key", "/v1/charges")
    try:
        return client.ask("k")
    finally:
        client.close()


CLIENTS = pytest.mark.parametrize(
    ("ask", "named"),
    [
        (ask_bank, BankAnswerInvalid),
        (ask_model, ModelAnswerInvalid),
        (send_to_gateway, Unclear),
        (ask_gateway, Unclear),
    ],
)
Ask = Callable[[ScriptedWorld], object]


@cache
def bomb() -> bytes:
    return gzip.compress(b" " * MUCH)


@contextmanager
def in_little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < LITTLE, f"{peak} bytes at the peak"


@CLIENTS
@pytest.mark.parametrize("status", [200, 503])
def test_a_compressed_reply_is_given_up_by_its_head(
    world: ScriptedWorld, ask: Ask, named: type[FleetError], status: int
) -> None:
    answer: Answer = status, bomb(), {"content-encoding": "gzip"}
    world.reply = lambda *_: answer
    with pytest.raises(named, match="a compressed reply, which nobody asked for"):
        ask(world)  # loads what the client is made of, too
    with in_little_memory(), pytest.raises(named):
        ask(world)


@CLIENTS
@pytest.mark.parametrize("status", [200, 503])
def test_a_reply_that_is_too_large_is_given_up_on_its_way(
    world: ScriptedWorld, ask: Ask, named: type[FleetError], status: int
) -> None:
    answer: Answer = status, b" " * MUCH
    world.reply = lambda *_: answer
    with pytest.raises(named, match=f"a reply of more than {LARGEST_REPLY} bytes"):
        ask(world)
    with in_little_memory(), pytest.raises(named):
        ask(world)


def test_a_reply_in_a_great_many_parts_counts_by_what_they_take(
    world: ScriptedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "LARGEST_REPLY", 2**20)
    parts = 2**20 // 32
    answer: Answer = 200, b"2\r\n  \r\n" * parts + b"0\r\n\r\n", {"transfer-encoding": "chunked"}
    world.reply = lambda *_: answer
    with pytest.raises(BankAnswerInvalid, match="a reply of more than 1048576 bytes"):
        ask_bank(world)


def test_a_large_reply_that_is_not_too_large_is_read(world: ScriptedWorld) -> None:
    room = b" " * (LARGEST_REPLY * 3 // 4)
    world.reply = lambda *_: (200, room + b'{"balances": [], "id": "ch_1"}', {"content-encoding": "identity"})
    assert ask_bank(world) == ()
    assert send_to_gateway(world) == ask_gateway(world) == Receipt("ch_1")
    message = {"role": "assistant", "content": json.dumps({"category": "Office"})}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    body["choices"] = [{"index": 0, "finish_reason": "stop", "message": message}]
    world.reply = lambda *_: (200, room + json.dumps(body).encode())
    assert ask_model(world) == "Office"


def test_a_reply_that_is_given_up_closes_its_connection_and_the_client_goes_on(world: ScriptedWorld) -> None:
    answers: list[Answer] = [(200, b" " * MUCH), (200, bomb(), {"content-encoding": "gzip"}), (200, {"balances": []})]
    world.reply = lambda *_: answers.pop(0)
    client = BankClient(world.url, "id", "key", connections=1)
    for _ in range(2):
        with pytest.raises(BankAnswerInvalid):
            client.balances("a")
    assert client.balances("a") == ()
    client.close()


def test_every_client_asks_for_replies_as_they_are(world: ScriptedWorld) -> None:
    world.reply = lambda *_: (404, {})
    for ask in (ask_bank, ask_model, send_to_gateway, ask_gateway):
        with pytest.raises(FleetError):
            ask(world)
    assert world.encodings == ["identity"] * 4
