"""The sandbox's gateway as a process of its own, and the client that sorts what it says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from books.gateway import GatewayClient
from books.outside import Limited, NotTaken, Receipt, Refused, Unclear
from books.outside.answers import Conflicting
from books.sandbox.gateway.weather import MOST_FAULTS, Fault, Weather
from fleet import deadline
from fleet.errors import DeadlineExceeded
from tests.books.gateway import KEY, SandboxGateway, sandbox_gateway
from tests.ports import free_port

CHARGE = {"reference": "subscription 5 2026-03-01", "amount_cents": 1_900, "currency": "EUR", "method": "pm_1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gateway")


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[SandboxGateway]:
    with sandbox_gateway(folder) as running:
        yield running


@pytest.fixture
def gateway(shared: SandboxGateway) -> SandboxGateway:
    shared.script(send=[], ask=[])
    return shared


def client(gateway: SandboxGateway, path: str = "/payments/v1/charges", seconds: float = 5, key: str = KEY) -> Any:
    return GatewayClient(gateway.url, key, path, timeout=timedelta(seconds=seconds))


def test_the_same_key_and_body_are_taken_once_and_answered_alike(gateway: SandboxGateway) -> None:
    payments, body = client(gateway), CHARGE | {"reference": "once"}
    first = payments.send("once", body)
    assert payments.send("once", dict(reversed(body.items()))) == first == payments.ask("once")
    assert gateway.taken()["once"] == 1


def test_a_key_that_comes_with_another_body_is_refused_and_changes_nothing(gateway: SandboxGateway) -> None:
    payments, body = client(gateway), CHARGE | {"reference": "reused"}
    payments.send("reused", body)
    with pytest.raises(Conflicting, match="another thing"):
        payments.send("reused", body | {"amount_cents": 1})
    assert gateway.lines(reference="reused")[-1]["status"] == 422
    assert gateway.taken()["reused"] == 1


def test_twenty_that_come_at_once_with_one_key_are_one(gateway: SandboxGateway) -> None:
    payments, body = client(gateway), CHARGE | {"reference": "crowd"}
    with ThreadPoolExecutor(20) as pool:
        receipts = set(pool.map(lambda _: payments.send("crowd", body), range(20)))
    assert len(receipts) == gateway.taken()["crowd"] == 1


def test_a_filing_and_a_charge_may_have_the_same_key(gateway: SandboxGateway) -> None:
    client(gateway).send("both", CHARGE | {"reference": "a charge"})
    client(gateway, "/authority/v1/filings").send("both", {"reference": "a filing"})
    assert (gateway.taken()["a charge"], gateway.taken()["a filing"]) == (1, 1)


def test_who_never_sent_a_key_is_told_so(gateway: SandboxGateway) -> None:
    assert client(gateway).ask("never") is None


def test_a_refused_card_is_a_result_that_is_remembered(gateway: SandboxGateway) -> None:
    payments, body = client(gateway), CHARGE | {"reference": "poor", "method": "pm_declined_1"}
    for ask in (lambda: payments.send("poor", body), lambda: payments.send("poor", body), lambda: payments.ask("poor")):
        with pytest.raises(Refused, match="card_declined"):
            ask()
    assert gateway.taken()["poor"] == 0


@pytest.mark.parametrize(("fault", "error", "taken"), [
    ("silent", Unclear, 1),
    ("failed", Unclear, 1),
    ("late", Unclear, 1),
    ("dropped", Unclear, 0),
    ("away", Unclear, 0),
    ("limited", Limited, 0),
])  # fmt: skip
def test_what_may_have_been_taken_is_unclear_and_can_be_asked_for(
    gateway: SandboxGateway, fault: str, error: type[Exception], taken: int
) -> None:
    payments, body = client(gateway, seconds=0.5), CHARGE | {"reference": fault}
    gateway.script(send=[fault])
    with pytest.raises(error) as found:
        payments.send(f"fault-{fault}", body)
    assert gateway.taken()[fault] == taken
    assert (payments.ask(f"fault-{fault}") is not None) == bool(taken)
    assert isinstance(payments.send(f"fault-{fault}", body), Receipt)
    assert gateway.taken()[fault] == 1
    if error is Limited:
        assert found.value.after == timedelta(seconds=1)  # type: ignore[attr-defined]
    else:
        assert found.value.answered == (fault in ("failed", "away"))  # type: ignore[attr-defined]


@pytest.mark.parametrize("fault", ["dropped", "away", "late"])
def test_a_question_without_an_answer_is_unclear(gateway: SandboxGateway, fault: str) -> None:
    gateway.script(ask=[fault])
    with pytest.raises(Unclear):
        client(gateway, seconds=0.5).ask("asked")


def test_a_closed_door_and_a_wrong_key_take_nothing_for_certain(gateway: SandboxGateway) -> None:
    port = free_port()
    for url, key in ((f"http://127.0.0.1:{port}", KEY), ("no-url", KEY), ("ftp://a", KEY), (gateway.url, "wrong")):
        with pytest.raises(NotTaken):
            GatewayClient(url, key, "/payments/v1/charges").send("door", CHARGE | {"reference": "door"})
    assert gateway.taken()["door"] == 0


def test_a_body_that_makes_no_sense_is_refused_for_good(gateway: SandboxGateway) -> None:
    with pytest.raises(Refused, match="amount_invalid"):
        client(gateway).send("nonsense", CHARGE | {"amount_cents": -5})


def test_errors_hold_nothing_of_what_was_sent(gateway: SandboxGateway) -> None:
    secret = "DE89370400440532013000"
    body = CHARGE | {"reference": secret, "amount_cents": 123_456_789}
    for faults in (["silent"], ["away"], ["limited"]):
        gateway.script(send=[*faults])
        with pytest.raises((Unclear, Limited)) as found:
            client(gateway).send("secret", body)
        assert secret not in str(found.value)
        assert "123456789" not in str(found.value)


def test_a_call_ends_with_the_jobs_budget(gateway: SandboxGateway) -> None:
    gateway.script(send=["late"], ask=["late"])
    calls: list[Callable[[], object]] = [
        lambda: client(gateway, seconds=30).send("late", CHARGE | {"reference": "budget"}),
        lambda: client(gateway, seconds=30).ask("late"),
    ]
    for call in calls:
        started = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            deadline.run_within(timedelta(seconds=0.5), call)
        assert time.monotonic() - started < 15


def test_a_server_that_was_killed_remembers_what_its_log_says(tmp_path: Path) -> None:
    with sandbox_gateway(tmp_path) as first:
        receipt = client(first).send("kept", CHARGE)
        first.process.kill()
        first.process.wait(5)
    with sandbox_gateway(tmp_path) as second:
        assert client(second).ask("kept") == receipt == client(second).send("kept", CHARGE)
        assert second.taken() == {CHARGE["reference"]: 1}


def test_the_weather_meets_every_fault_and_lets_every_key_through_in_the_end() -> None:
    met = set()
    for number in range(300):
        weather = Weather(7, timedelta(0), calm=False)
        faults = [weather.outlook("send", f"key {number}").fault for _ in range(MOST_FAULTS["send"] + 1)]
        assert None in faults
        met.update(faults)
        again = Weather(7, timedelta(0), calm=False)
        assert [again.outlook("send", f"key {number}").fault for _ in faults] == faults
    assert met == {*Fault, None}
