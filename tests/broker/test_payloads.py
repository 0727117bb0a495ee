"""What messages carry is encrypted where there are keys, opens by any of them, and fits no other message."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dramatiq
import pytest
from cryptography.fernet import Fernet
from dramatiq import Message
from dramatiq.encoder import JSONEncoder
from dramatiq.errors import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from fleet.broker import dead, keys
from fleet.errors import MessageTooDeep, SettingsInvalid
from fleet.payloads import SEALED, PayloadEncoder, PayloadSealed
from fleet.settings import Settings
from tests.broker.station import QUEUE, Station
from tests.waiting import wait_until

OLD, NEW, STRANGE = (Fernet.generate_key().decode() for _ in range(3))
Use = Callable[..., PayloadEncoder]


@pytest.fixture
def use() -> Iterator[Use]:
    """Sets the process's encoder to one with these keys."""

    def made(*with_keys: str, seal: bool = True) -> PayloadEncoder:
        encoder = PayloadEncoder(lambda: with_keys, lambda: seal)
        dramatiq.set_encoder(encoder)
        return encoder

    before = dramatiq.get_encoder()
    yield made
    dramatiq.set_encoder(before)


def message(*args: Any, **options: Any) -> Message[Any]:
    return Message("q", "pay", args, {"iban": "DE89370400440532013000"}, {"redis_message_id": "r", **options})


def sealed_by(with_keys: Sequence[str], one: Message[Any]) -> bytes:
    return PayloadEncoder(lambda: with_keys).encode(one.asdict())


def test_without_keys_the_bytes_are_dramatiqs_own() -> None:
    one = message(17, retries=2)
    assert sealed_by((), one) == JSONEncoder().encode(one.asdict())


def test_arguments_and_a_retrys_traceback_are_not_among_the_bytes_and_come_back(use: Use) -> None:
    use(NEW)
    one = message("Erika Mustermann", traceback="ValueError: 12,50 EUR", retries=1)
    encoded = one.encode()
    assert not any(word in encoded for word in (b"Erika", b"DE893", b"12,50", b"iban"))
    assert json.loads(encoded)["options"]["retries"] == 1
    assert Message.decode(encoded) == one


def test_a_new_key_seals_while_the_old_one_still_opens(use: Use) -> None:
    before = sealed_by((OLD,), message(1))
    use(NEW, OLD)
    assert Message.decode(before).args == (1,)
    after = message(2).encode()
    use(NEW)
    assert Message.decode(after).args == (2,)
    with pytest.raises(DecodeError) as found:
        Message.decode(before)
    assert isinstance(found.value.error, PayloadSealed) and "taken off too early" in str(found.value.error)


def test_a_process_may_open_before_anybody_seals(use: Use) -> None:
    use(NEW, seal=False)
    one = message(1)
    assert one.encode() == JSONEncoder().encode(one.asdict())
    assert Message.decode(sealed_by((NEW,), one)) == one


def test_arguments_that_were_put_into_another_message_do_not_open(use: Use) -> None:
    use(NEW)
    stolen = json.loads(message(1_000_000).encode())["options"][SEALED]
    other = json.loads(message(1).encode())
    other["options"][SEALED] = stolen
    with pytest.raises(DecodeError) as found:
        Message.decode(json.dumps(other).encode())
    assert "has the encrypted arguments of message" in str(found.value.error)


@pytest.mark.parametrize("key", ["short", NEW[:-2], "ä" * 44], ids=["short", "cut", "no ASCII"])
def test_a_key_that_is_none_is_refused_by_its_place_and_not_repeated(key: str) -> None:
    with pytest.raises(SettingsInvalid, match="key 2 of 2 is no Fernet key") as found:
        sealed_by((NEW, key), message(1))
    assert key not in str(found.value)


def test_settings_take_keys_with_commas_between_and_never_show_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_PAYLOAD_KEYS", f"{NEW}, {OLD}")
    settings = Settings.read()
    assert settings.payload_keys == (NEW, OLD)
    assert NEW not in repr(settings) and OLD not in str(settings)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=10,
    )
)
def test_whatever_json_takes_comes_back_as_it_would_without_keys(value: Any) -> None:
    encoder = PayloadEncoder(lambda: (NEW,))
    one = message(value)
    plain = JSONEncoder().decode(JSONEncoder().encode(one.asdict()))
    assert encoder.decode(encoder.encode(one.asdict())) == plain


def test_a_worker_without_the_key_keeps_the_letter_and_one_with_it_runs_it_after_a_requeue(
    station: Station, use: Use
) -> None:
    ran: list[tuple[Any, ...]] = []
    actor = station.actor(lambda *args: ran.append(args), actor_name="pay")
    use(NEW)
    actor.send("secret")
    use(STRANGE)
    worker = station.work()
    wait_until(lambda: bool(station.letters()))
    [details] = station.letters().values()
    assert json.loads(details)["reason"] == "sealed"
    [body] = station.broker.client.hvals(keys.dead_bodies(station.namespace, QUEUE))
    assert b"secret" not in body
    use(STRANGE, NEW)
    assert list(dead.requeue(station.broker, dead.select(station.broker, [QUEUE]), a_second=100)) == ["moved"]
    station.until_empty()
    assert ran == [("secret",)]
    assert worker is not None


def test_a_retry_is_sealed_again_and_a_fan_out_too(station: Station, use: Use) -> None:
    use(NEW)
    seen: list[str] = []

    def stumble(name: str) -> None:
        seen.append(name)
        if seen.count(name) == 1:
            raise ValueError(f"stumbled over {name}")

    actor = station.actor(stumble, actor_name="stumble")
    station.broker.enqueue_calls(actor, [("Erika",), ("Max",)])
    bodies = b"".join(station.broker.client.hvals(keys.bodies(station.namespace, QUEUE)))
    assert b"Erika" not in bodies and b"Max" not in bodies
    station.work()
    station.until_empty()
    assert sorted(seen) == ["Erika", "Erika", "Max", "Max"]


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"inner": value}
    return value


def test_arguments_nested_too_deep_are_refused_at_the_send_and_at_the_fetch(station: Station) -> None:
    ran: list[Any] = []
    actor = station.actor(lambda value: ran.append(value), actor_name="deep")
    actor.send(nested(64))
    for depth in (65, 900, 50_000):
        with pytest.raises(MessageTooDeep, match="nested deeper than 64"):
            actor.send(nested(depth))
    by_hand = Message(QUEUE, "deep", (nested(400),), {}, {"redis_message_id": "by-hand"})
    station.broker.accept([(QUEUE, "by-hand", by_hand.encode())], None)
    bottomless = b'{"args":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    station.broker.accept([(QUEUE, "bottomless", bottomless)], None)
    station.work()
    wait_until(lambda: len(station.letters()) == 2)
    reasons = {id: json.loads(details)["reason"] for id, details in station.letters().items()}
    assert reasons == {b"by-hand": "too deep", b"bottomless": "undecodable"}
    station.until_empty()
    assert ran == [nested(64)]
