"""Late means never: a late message is dropped and counted, and what it would have sent is late with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from dramatiq import Message
from structlog.testing import capture_logs

from fleet import queue, wire
from fleet.actor import current_asked_at, current_message
from fleet.clock import Night, clock
from fleet.errors import ExpiryInvalid
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


def test_what_is_delayed_past_the_expiry_that_it_inherits_is_said_where_it_is_sent(house: Any) -> None:
    work, sent = queue("work"), threading.Event()
    mail = work.actor(lambda word: None, name="mail")

    @work.actor
    def root() -> None:
        mail.send_with_options(args=("too late",), delay=timedelta(hours=6))
        mail.send_with_options(args=("for good",), delay=timedelta(hours=6), expires_at=None)
        mail.send_with_options(args=("soon enough",), delay=timedelta(hours=1))
        mail.send("now")
        sent.set()

    slot = {wire.ENTRY: "nightly", wire.SLOT: wire.to_ms(SLOT)}
    with capture_logs() as lines:
        root.send_with_options(expires_at=clock.now() + timedelta(hours=2), **slot)
        house.work()
        assert sent.wait(10)
    [said] = [line for line in lines if line["event"] == "delayed_past_expiry"]
    assert (said["log_level"], said["actor"], said["queue"], said["origin"]) == ("warning", "mail", "work", ORIGIN)
    assert said["late"].startswith("4:00:0") and "expires_at=None" in said["instead"]


def test_what_is_sent_outside_a_job_or_has_an_expiry_of_its_own_is_not_said_to_be_delayed_past_it(house: Any) -> None:
    sent = threading.Event()
    mail = queue("work").actor(lambda: None, name="mail")

    @queue("work").actor
    def root() -> None:
        mail.send_with_options(delay=timedelta(hours=6), expires_at=clock.now() + timedelta(hours=1))
        sent.set()

    with capture_logs() as lines:
        mail.send_with_options(delay=timedelta(hours=6))
        root.send_with_options(expires_at=clock.now() + timedelta(hours=2))
        house.work()
        assert sent.wait(10)
    assert "delayed_past_expiry" not in [line["event"] for line in lines]


@pytest.mark.parametrize("at", [SLOT, SLOT.astimezone(ZoneInfo("Europe/Berlin")), wire.to_ms(SLOT)])
def test_an_expiry_is_given_as_an_aware_datetime_or_in_milliseconds(house: Any, at: Any) -> None:
    lived = queue("work").actor(lambda: None, name="lived")
    sent = lived.send_with_options(expires_at=at)
    assert sent.options[wire.EXPIRES_AT] == lived.message_with_options(expires_at=at).options[wire.EXPIRES_AT]
    assert sent.options[wire.EXPIRES_AT] == wire.to_ms(SLOT)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (SLOT.replace(tzinfo=None), "no time zone"),
        (1_800_000_000_000.5, "float that is no instant"),
        (1_800_000_000, "in milliseconds that is 1970-01-21; these may be seconds"),
        (60_000, "seconds"),
        (2**62, "no instant"),
        (True, "bool"),
        (timedelta(hours=1), "timedelta"),
        ("2026-03-02T01:00:00Z", "str"),
    ],
    ids=str,
)
def test_an_expiry_that_names_no_instant_for_certain_is_refused_at_the_send(house: Any, found: Any, why: str) -> None:
    lived = queue("work").actor(lambda: None, name="lived")
    with pytest.raises(ExpiryInvalid, match=f"to 'lived' with expires_at=.*{why}.* Give an aware datetime"):
        lived.send_with_options(expires_at=found)
    assert house.broker.do_qsize("work") == 0


@pytest.mark.parametrize("found", ["soon", 1.7e12, True, 2**62, [1]], ids=str)
def test_an_expiry_of_another_producer_that_is_no_instant_is_said_and_nothing_expires(house: Any, found: Any) -> None:
    inherited: list[bool] = []

    @queue("work").actor
    def child() -> None:
        message = current_message()
        assert message is not None
        inherited.append(wire.EXPIRES_AT in message.options)

    queue("work").actor(lambda: child.send() and None, name="lived")
    with capture_logs() as lines:
        house.broker.enqueue(Message("work", "lived", (), {}, {wire.EXPIRES_AT: found}))
        house.work()
        house.until_idle()
    assert inherited == [False] and house.dead() == []
    [said] = [line for line in lines if line["event"] == "expires_at_ignored"]
    assert (said["actor"], said["found"]) == ("lived", repr(found))


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
