"""Whoever has no key lists, shows and moves what is sealed, and loses none of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import dramatiq
import pytest
from cryptography.fernet import Fernet
from dramatiq import Message
from typer.testing import CliRunner

from fleet import cli_dead, probe
from fleet.broker import dead, keys
from fleet.explain import places
from fleet.payloads import SEALED, PayloadEncoder
from tests.broker.station import QUEUE, Station
from tests.waiting import wait_until

KEY = Fernet.generate_key().decode()
Use = Callable[..., None]
Run = Callable[..., Any]


@pytest.fixture
def use() -> Iterator[Use]:
    """Sets the process's encoder to one with these keys."""
    before = dramatiq.get_encoder()
    yield lambda *with_keys: dramatiq.set_encoder(PayloadEncoder(lambda: with_keys))
    dramatiq.set_encoder(before)


@pytest.fixture
def run(station: Station, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`fleet dead` over the station's queue."""
    monkeypatch.setattr(cli_dead, "process_broker", lambda: station.broker)
    app: Any = SimpleNamespace(lanes=[SimpleNamespace(queues=(QUEUE,))], actor=lambda name: None)
    return lambda *words: CliRunner().invoke(cli_dead.cli, list(words), obj=lambda: app)


def fail_three(station: Station, use: Use, ran: list[Any]) -> None:
    """Three letters: in the open, sealed, in the open."""

    def pay(name: str) -> None:
        ran.append(name)
        if ran.count(name) == 1:
            raise ValueError("no money")

    actor = station.actor(pay, actor_name="pay", max_retries=0)
    station.work(threads=1)
    for name, with_keys in (("first", ()), ("Erika", (KEY,)), ("third", ())):
        use(*with_keys)
        actor.send(name)
        use(KEY)  # the worker has it
        wait_until(lambda name=name: ran.count(name) == 1)
        wait_until(lambda: len(station.letters()) == len(ran))
    station.stop()


def test_a_list_without_the_key_goes_on_behind_a_sealed_letter_and_says_what_it_is(
    station: Station, use: Use, run: Run
) -> None:
    fail_three(station, use, [])
    use()
    said = run("list").output
    assert "letters 1–3 of 3" in said
    assert said.count("pay") == 3 and said.count("pay (sealed)") == 1
    [sealed] = [letter for letter in dead.letters(station.broker, [QUEUE]) if letter.sealed]
    shown = json.loads(run("show", sealed.id).output)
    assert shown["actor"] == "pay" and shown["arguments"].startswith("sealed:") and "args" not in shown
    assert "Erika" not in run("show", sealed.id).output
    use(KEY)
    assert json.loads(run("show", sealed.id).output)["args"] == ["Erika"]


def test_a_sealed_letter_is_queued_again_without_the_key_and_runs_where_it_is(
    station: Station, use: Use, run: Run
) -> None:
    ran: list[Any] = []
    fail_three(station, use, ran)
    use()
    assert "3 of 3 queued again" in run("requeue", "--rate", "1000", "--yes").output
    bodies = station.broker.client.hvals(keys.bodies(station.namespace, QUEUE))
    assert sum(SEALED in json.loads(body)["options"] for body in bodies) == 1
    assert not any(b"Erika" in body for body in bodies)
    use(KEY)
    station.work()
    station.until_empty()
    assert sorted(ran) == ["Erika", "Erika", "first", "first", "third", "third"]


def test_a_sealed_message_is_explained_and_probed_without_the_key(station: Station, use: Use) -> None:
    use(KEY)
    actor = station.actor(lambda name: None, actor_name="pay")
    sent = actor.send_with_options(args=("x" * 5_000,), delay=60_000)
    sent = actor.send("x" * 5_000)
    use()
    [place] = places.find(station.broker, [QUEUE], sent.message_id)
    assert place.message is not None and place.message.actor_name == "pay"
    [reading] = probe.read(station.broker, [QUEUE])
    assert reading.ready == 1 and reading.delayed == 1 and reading.oldest_age is not None


def test_when_a_long_sealed_message_was_due_stands_where_a_probe_reads_it(station: Station, use: Use) -> None:
    use(KEY)
    one: Message[Any] = Message(QUEUE, "pay", ("x" * 5_000,), {}, {"redis_message_id": "r", "due_at": 17})
    assert b'"due_at":17' in one.encode()[-512:]
