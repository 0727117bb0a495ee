"""A subscription's period is charged once, by the gateway's own log, whoever asks for it and however often."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from dramatiq import Message
from sqlalchemy import delete, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from books import charging, outside
from books.calendar import today
from books.models import EffectStatus, OutsideEffect, Subscription, SubscriptionStatus
from books.outside import Unclear
from fleet import clock as clocks
from fleet.broker import FleetBroker, keys
from fleet.clock import Night, clock
from fleet.storage import session
from fleet.workers.presence import present
from tests.books.gateway import SandboxGateway, sandbox_gateway
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
LANE, QUEUE = "transaction_sync", "charging"


@pytest.fixture
def till(migrated: object, gateway: SandboxGateway) -> SandboxGateway:
    with session() as s:
        s.execute(delete(OutsideEffect))
        s.execute(delete(Subscription))
    return gateway


def subscribe(
    *, method: str = "pm_1", status: SubscriptionStatus = SubscriptionStatus.ACTIVE, days_ago: int = 0
) -> tuple[int, str]:
    """A subscription and its period, as `due` says it."""
    begins = today() - timedelta(days=days_ago)
    with session() as s:
        row = Subscription(
            customer="c",
            plan="ledger",
            amount_cents=1_900,
            currency="EUR",
            method=method,
            billing_day=begins.day,
            next_period=begins,
            status=status,
        )
        s.add(row)
        s.flush()
        return row.id, begins.isoformat()


def now(row: int) -> Subscription:
    with session() as s:
        return s.get_one(Subscription, row)


def reference(subscription: tuple[int, str]) -> str:
    return f"subscription {subscription[0]} {subscription[1]}"


def test_what_has_begun_is_due_and_nothing_else(till: SandboxGateway) -> None:
    begun, late = subscribe(), subscribe(days_ago=40)
    subscribe(days_ago=-1)
    for status in set(SubscriptionStatus) - {SubscriptionStatus.ACTIVE}:
        subscribe(status=status)
    assert charging.due() == [begun, late]


def test_a_period_is_charged_once_and_the_next_one_is_a_month_on(till: SandboxGateway) -> None:
    subscription = subscribe()
    for token in ("m1", "m1", "m2"):
        charging.charge(*subscription, token=token)
    row = now(subscription[0])
    assert row.next_period == charging.following(date.fromisoformat(subscription[1]), row.billing_day)
    assert row.status == SubscriptionStatus.ACTIVE
    assert till.taken()[reference(subscription)] == 1
    assert charging.due() == []


def test_a_month_that_was_missed_is_caught_up_a_period_a_pass(till: SandboxGateway) -> None:
    row, _ = subscribe(days_ago=65)
    periods = []
    for token in "abcd":
        for due in charging.due():
            periods.append(due[1])
            charging.charge(*due, token=token)
    assert len(periods) == len(set(periods)) == 3
    assert [till.taken()[f"subscription {row} {charged}"] for charged in periods] == [1, 1, 1]


def test_a_message_about_another_period_than_the_next_charges_nothing(till: SandboxGateway) -> None:
    row, period = subscribe()
    for other in (date.fromisoformat(period) - timedelta(days=31), charging.following(date.fromisoformat(period), 1)):
        charging.charge(row, other.isoformat(), token="m1")
        assert till.taken()[f"subscription {row} {other}"] == 0
    assert now(row).next_period.isoformat() == period


def test_a_refused_card_ends_readably_and_is_left_alone(till: SandboxGateway) -> None:
    subscription = subscribe(method="pm_declined_7")
    for token in ("m1", "m2"):
        charging.charge(*subscription, token=token)
    row = now(subscription[0])
    assert row.status == SubscriptionStatus.DECLINED
    assert "card_declined" in (row.outcome or "")
    assert row.next_period.isoformat() == subscription[1]
    assert len(till.lines(reference=reference(subscription))) == 1
    assert charging.due() == []


@pytest.mark.parametrize("method", ["pm_1", "pm_declined_1"])
def test_a_lost_answer_is_found_out_whatever_it_was(till: SandboxGateway, method: str) -> None:
    subscription = subscribe(method=method)
    till.script(send=["silent"], ask=["dropped"])
    with pytest.raises(Unclear):
        charging.charge(*subscription, token="m1")
    charging.charge(*subscription, token="m1")
    declined = method != "pm_1"
    assert now(subscription[0]).status == (SubscriptionStatus.DECLINED if declined else SubscriptionStatus.ACTIVE)
    assert till.taken()[reference(subscription)] == (0 if declined else 1)
    assert len(till.lines(reference=reference(subscription))) == 1


def test_a_price_that_changed_meanwhile_is_not_what_is_sent_again(till: SandboxGateway) -> None:
    subscription = subscribe()
    till.script(send=["dropped"], ask=["away"])
    with pytest.raises(Unclear):
        charging.charge(*subscription, token="m1")
    with session() as s:
        s.execute(update(Subscription).values(amount_cents=9_900))
    charging.charge(*subscription, token="m1")
    assert [line["amount_cents"] for line in till.lines(reference=reference(subscription))] == [1_900, 1_900]


def test_what_nobody_can_tell_parks_the_subscription_too(till: SandboxGateway) -> None:
    subscription = subscribe()
    till.script(send=["silent"], ask=["away", "away"])
    with pytest.raises(Unclear):
        charging.charge(*subscription, token="m1")
    with session() as s:
        s.execute(update(OutsideEffect).values(lease_until=func.now() - timedelta(seconds=1)))
    assert outside.resolve(token="janitor").parked == 1
    assert now(subscription[0]).status == SubscriptionStatus.NEEDS_REVIEW
    assert charging.due() == []


def test_a_subscription_that_was_cancelled_while_it_was_charged_stays_cancelled(till: SandboxGateway) -> None:
    subscription = subscribe()
    till.script(send=["silent"], ask=["away"])
    with pytest.raises(Unclear):
        charging.charge(*subscription, token="m1")
    with session() as s:
        s.execute(update(Subscription).values(status=SubscriptionStatus.CANCELLED))
        s.execute(update(OutsideEffect).values(lease_until=func.now() - timedelta(seconds=1)))
    assert outside.resolve(token="janitor").settled == 1
    assert now(subscription[0]).status == SubscriptionStatus.CANCELLED
    with session() as s:
        assert s.scalars(select(OutsideEffect.status)).all() == [EffectStatus.DONE]


def cut_off(till: SandboxGateway) -> tuple[int, str]:
    """A charge whose connection broke, of which the gateway knows nothing, and whose worker never heard of that."""
    subscription = subscribe()
    till.script(send=["dropped"], ask=["away"])
    with pytest.raises(Unclear):
        charging.charge(*subscription, token="m1")
    return subscription


def cancel(s: Session) -> None:
    s.execute(update(Subscription).values(status=SubscriptionStatus.CANCELLED))


def lapse() -> None:
    with session() as s:
        s.execute(update(OutsideEffect).values(lease_until=func.now() - timedelta(seconds=1)))


def effect() -> tuple[str, str | None]:
    """Status and outcome of the one charge."""
    with session() as s:
        row = s.scalars(select(OutsideEffect)).one()
        return row.status, row.outcome


def test_a_cancelled_subscription_is_not_charged_by_the_janitor_that_hears_it_was_not(till: SandboxGateway) -> None:
    subscription = cut_off(till)
    with session() as s:
        cancel(s)
    charging.charge(*subscription, token="m1")
    assert effect()[0] == EffectStatus.RUNNING
    lapse()
    assert outside.resolve(token="janitor").settled == 1
    assert till.taken()[reference(subscription)] == 0
    assert effect() == (EffectStatus.NOT_SENT, "not sent: its subscription is cancelled")
    assert now(subscription[0]).status == SubscriptionStatus.CANCELLED
    assert outside.resolve(token="janitor").settled == 0


def test_a_cancellation_that_is_about_to_commit_is_waited_for(till: SandboxGateway) -> None:
    subscription = cut_off(till)
    lapse()
    with ThreadPoolExecutor(1) as janitor:
        with session() as s:
            cancel(s)
            s.flush()
            passing = janitor.submit(outside.resolve, token="janitor")
            wait_until(lambda: passing.done() or waits_for_a_lock(), 20)
        assert passing.result(20).settled == 1
    assert till.taken()[reference(subscription)] == 0
    assert effect() == (EffectStatus.NOT_SENT, "not sent: its subscription is cancelled")


def waits_for_a_lock() -> bool:
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with session() as s:
        return bool(s.scalar(waiting))


def test_a_call_of_a_moment_ago_is_asked_about_later_before_a_cancellation_ends_it(
    till: SandboxGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = charging.Charge.ask

    def ask(kind: charging.Charge, row: OutsideEffect) -> outside.Receipt | None:
        with session() as s:
            cancel(s)  # its customer, meanwhile
        return asked(kind, row)

    monkeypatch.setattr(charging.Charge, "ask", ask)
    subscription = subscribe()
    till.script(send=["dropped"])
    with pytest.raises(Unclear):
        charging.charge(*subscription, token="m1")
    assert effect()[0] == EffectStatus.RUNNING
    lapse()
    outside.resolve(token="janitor")
    assert (effect()[0], till.taken()[reference(subscription)]) == (EffectStatus.NOT_SENT, 0)


def test_what_the_database_refuses_is_not_repeated_in_the_error(till: SandboxGateway) -> None:
    row, _ = subscribe(method="pm_secret")
    with session() as s:
        values = {column.name: getattr(now(row), column.name) for column in Subscription.__table__.columns}
        with pytest.raises(IntegrityError) as refused:
            s.execute(insert(Subscription).values(values))
        s.rollback()
    assert f"({row}) already exists" in str(refused.value)
    assert "pm_secret" not in str(refused.value)
    assert "1900" not in str(refused.value)


@pytest.mark.parametrize(("first", "day", "then"), [
    (date(2026, 1, 31), 31, date(2026, 2, 28)),
    (date(2026, 2, 28), 31, date(2026, 3, 31)),
    (date(2028, 1, 30), 30, date(2028, 2, 29)),
    (date(2026, 12, 1), 1, date(2027, 1, 1)),
])  # fmt: skip
def test_periods_keep_to_their_day_of_the_month(first: date, day: int, then: date) -> None:
    assert charging.following(first, day) == then


@pytest.fixture
def stormy(migrated: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SandboxGateway]:
    """A gateway with weather of its own, in a night that is two minutes a second."""
    night = Night(datetime(2026, 3, 3, 4, 30, tzinfo=UTC), datetime.now(UTC), 120.0)
    for name, value in clocks.environment(night).items():
        monkeypatch.setenv(name, value)
    clock.set_night(night)
    with sandbox_gateway(tmp_path, "--seed", "4") as gateway:
        for name, value in gateway.settings().items():
            monkeypatch.setenv(name, value)
        with session() as s:
            s.execute(delete(OutsideEffect))
            s.execute(delete(Subscription))
        yield gateway


class Lanes:
    """Two `fleet work transaction_sync`, the bookkeeping's own."""

    def __init__(self, folder: Path) -> None:
        self._logs = [folder / f"log-{number}" for number in range(2)]
        command = [sys.executable, "-m", "fleet", "--app", str(ROOT), "work", LANE]
        environment = {**os.environ, "FLEET_LOG_FORMAT": "json"}
        self._running = []
        for log in self._logs:
            with log.open("wb") as out:
                worker = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
            self._running.append(worker)

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = [line for log in self._logs for line in log.read_bytes().splitlines() if line.startswith(b"{")]
        return [event for line in lines if (event := json.loads(line))["event"] == name]

    def stop(self) -> None:
        for worker in self._running:
            worker.terminate()
        for worker in self._running:
            worker.wait(60)


@pytest.fixture
def lanes(stormy: SandboxGateway, tmp_path: Path) -> Iterator[Lanes]:
    running = Lanes(tmp_path)
    wait_until(lambda: len(running.events("worker_ready")) >= 2, 40)
    yield running
    running.stop()


def send_from_three_beats(environment: Any) -> None:
    """The slot's message as three leaders would send it at once, with no lock and no slot's claim between them."""
    together = threading.Barrier(3)

    def beat() -> None:
        broker = FleetBroker(url=environment.redis_url, namespace=environment.namespace, middleware=[])
        broker.declare_queue(QUEUE)
        message: Message[None] = Message(QUEUE, "charge_subscriptions", (), {}, {})
        together.wait(10)
        broker.enqueue(message)
        broker.client.close()

    beats = [threading.Thread(target=beat) for _ in range(3)]
    for thread in beats:
        thread.start()
    for thread in beats:
        thread.join()


def two_that_serve(client: redis.Redis, namespace: str) -> list[int]:
    """The processes that serve, once both are seen."""
    serving = [child.pid for child in present(client, namespace) if child.serves]
    return serving if len(serving) == 2 else []


def statuses() -> Counter[str]:
    with session() as s:
        return Counter(s.scalars(select(OutsideEffect.status)))


@pytest.mark.parametrize("killed", [False, True], ids=["nobody is killed", "both workers are killed while they charge"])
def test_three_beats_with_neither_lock_nor_slot_make_one_charge_a_subscription_and_period(
    environment: Any, stormy: SandboxGateway, redis_client: redis.Redis, lanes: Lanes, killed: bool
) -> None:
    paying = [subscribe() for _ in range(40)]
    poor = [subscribe(method="pm_declined_1") for _ in range(3)]
    children = wait_until(lambda: two_that_serve(redis_client, environment.namespace), 20)
    send_from_three_beats(environment)
    if killed:
        wait_until(lambda: statuses()[EffectStatus.RUNNING] >= 3, 20)
        for child in children:
            os.kill(child, signal.SIGKILL)
        died = wait_until(lambda: len(events := lanes.events("worker_died")) >= 2 and events, 40)
        assert {event["pid"] for event in died} >= set(children)
    bodies = keys.bodies(environment.namespace, QUEUE)
    ended = {EffectStatus.DONE: len(paying), EffectStatus.REFUSED: len(poor)}
    wait_until(lambda: statuses() == ended and redis_client.hlen(bodies) == 0, 100)
    if not killed:
        assert len(lanes.events("charges_due")) == 3
    assert stormy.taken() == {reference(subscription): 1 for subscription in paying}
    assert {now(row).status for row, _ in poor} == {SubscriptionStatus.DECLINED}
    assert charging.due() == []
    faults = {line["fault"] for line in stormy.lines(act="send")}
    assert len(faults - {None}) >= 4
