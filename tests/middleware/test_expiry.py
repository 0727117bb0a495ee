"""Late means never: a late message is dropped and counted, and what it would have sent is late with it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dramatiq import Message
from structlog.testing import capture_logs

from fleet import queue, wire
from fleet.actor import current_asked_at, current_message
from fleet.clock import Night, clock
from tests.broker.station import stock
from tests.waiting import wait_until

SLOT = datetime(2026, 3, 2, 1, tzinfo=UTC)
ORIGIN = "nightly@2026-03-02T01:00:00+00:00"


def test_what_a_message_sends_on_answers_for_the_same_instant(house: Any) -> None:
    asked: list[datetime] = []
    work = queue("work")
    child = work.actor(lambda: asked.append(current_asked_at()), name="child")
    parent = work.actor(lambda: child.send(), name="parent")
    clock.set_night(Night(origin=SLOT, anchor=datetime.now(UTC), rate=60.0))
    parent.send_with_options(slot=wire.to_ms(SLOT), entry="nightly")
    sent = parent.send()
    house.work()
    house.until_idle()
    of_slot, of_request = sorted(asked)
    assert of_slot == SLOT
    assert abs(of_request - clock.to_night(wire.from_ms(sent.message_timestamp))) < timedelta(milliseconds=1)


def in_ms(duration: timedelta) -> int:
    return wire.to_ms(clock.now() + duration)


def test_a_late_message_is_dropped_counted_and_no_dead_letter(house: Any, counted: Callable[..., float]) -> None:
    ran: list[str] = []
    lived = queue("work").actor(lambda word: ran.append(word), name="lived")
    lived.send_with_options(args=("late",), expires_at=in_ms(-timedelta(milliseconds=50)))
    lived.send_with_options(args=("in time",), expires_at=in_ms(timedelta(minutes=1)))
    lived.send("without expiry")
    house.work()
    house.until_idle()
    assert sorted(ran) == ["in time", "without expiry"]
    assert house.dead() == []
    wait_until(lambda: counted("fleet_messages_total", queue="work", actor="lived", outcome="done") == 2)
    assert counted("fleet_messages_total", queue="work", actor="lived", outcome="expired") == 1
    assert counted("fleet_jobs_running", queue="work") == 0


def test_expiry_is_measured_in_night_time(house: Any) -> None:
    ran: list[str] = []
    lived = queue("work").actor(lambda word: ran.append(word), name="lived")
    clock.set_night(Night(origin=SLOT, anchor=datetime.now(UTC), rate=1.0))
    lived.send_with_options(args=("in time",), expires_at=wire.to_ms(SLOT + timedelta(minutes=5)))
    lived.send_with_options(args=("late",), expires_at=wire.to_ms(SLOT - timedelta(minutes=5)))
    house.work()
    house.until_idle()
    assert ran == ["in time"]


@pytest.fixture
def fan_out(house: Any) -> Callable[..., list[dict[str, Any]]]:
    """Let a slot's message send one more, which sends one more; returns the options that each was sent with."""
    seen: list[dict[str, Any]] = []
    work = queue("work")

    def run(**options: Any) -> list[dict[str, Any]]:
        @work.actor
        def leaf() -> None:
            message = current_message()
            assert message is not None
            seen.append(message.options)

        @work.actor
        def branch() -> None:
            leaf()
            leaf.send()

        @work.actor
        def root() -> None:
            branch.send_with_options(**options)

        slot = {wire.ENTRY: "nightly", wire.SLOT: wire.to_ms(SLOT)}
        root.send_with_options(expires_at=in_ms(timedelta(hours=1)), **slot)
        house.work()
        house.until_idle()
        return seen

    return run


def test_a_fan_out_inherits_expiry_and_origin_however_deep(fan_out: Callable[..., list[dict[str, Any]]]) -> None:
    before = in_ms(timedelta(hours=1))
    branch, leaf = fan_out()
    for options in (branch, leaf):
        assert before <= options[wire.EXPIRES_AT] <= in_ms(timedelta(hours=1))
        assert options[wire.ORIGIN] == ORIGIN
        assert wire.ENTRY not in options and wire.SLOT not in options, "only one message stands for a slot"


def test_a_message_sent_with_none_never_expires_and_neither_does_what_it_sends(
    fan_out: Callable[..., list[dict[str, Any]]],
) -> None:
    branch, leaf = fan_out(expires_at=None)
    assert branch[wire.EXPIRES_AT] is None
    assert leaf.get(wire.EXPIRES_AT) is None
    assert leaf[wire.ORIGIN] == ORIGIN


def test_a_message_sent_with_an_expiry_of_its_own_keeps_that(fan_out: Callable[..., list[dict[str, Any]]]) -> None:
    own = in_ms(timedelta(days=1))
    branch, leaf = fan_out(expires_at=own)
    assert branch[wire.EXPIRES_AT] == leaf[wire.EXPIRES_AT] == own


def test_a_retry_keeps_its_expiry_and_is_dropped_once_it_is_late(house: Any, counted: Callable[..., float]) -> None:
    tries: list[int] = []

    @queue("work").actor(max_retries=50)
    def flaky() -> None:
        message = current_message()
        assert message is not None
        tries.append(message.options[wire.EXPIRES_AT])
        raise ValueError("not yet")

    house.work()  # before the clock runs: a worker may take longer to start than the message has
    expires_at = in_ms(timedelta(milliseconds=800))
    flaky.send_with_options(expires_at=expires_at, max_retries=1000)
    house.until_idle()
    assert len(tries) > 1 and set(tries) == {expires_at}
    assert house.dead() == []
    assert counted("fleet_messages_total", queue="work", actor="flaky", outcome="expired") == 1


def test_a_stock_producers_max_age_counts_from_its_messages_timestamp_and_makes_no_dead_letter(
    house: Any, redis_url: str, counted: Callable[..., float]
) -> None:
    ran: list[str] = []
    queue("work").actor(lambda word: ran.append(word), name="lived")
    producer = stock(redis_url, house.broker.namespace)
    for word, age in (("old", 10_000), ("young", 1_000)):
        sent = wire.to_ms(clock.real_now() - timedelta(milliseconds=age))
        producer.enqueue(Message("work", "lived", (word,), {}, {"max_age": 5_000}, message_timestamp=sent))
    producer.close()
    house.work()
    house.until_idle()
    assert ran == ["young"] and house.dead() == []
    wait_until(lambda: counted("fleet_messages_total", queue="work", actor="lived", outcome="done") == 1)
    assert counted("fleet_messages_total", queue="work", actor="lived", outcome="expired") == 1


@pytest.mark.parametrize("found", [None, 0, -1, "soon", float("inf"), True])
def test_a_max_age_that_is_none_is_said_and_nothing_expires(house: Any, found: object) -> None:
    ran: list[int] = []
    lived = queue("work").actor(lambda: ran.append(1), name="lived")
    with capture_logs() as lines:
        house.broker.enqueue(lived.message_with_options(max_age=found))
        house.work()
        house.until_idle()
    assert ran == [1]
    assert [line["event"] for line in lines].count("max_age_ignored") == 1
