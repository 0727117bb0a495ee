"""Each slot gets one verdict and at most one message, whoever leads and however late."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
import time_machine
from dramatiq import Message

from beat.fire import Firer
from beat.leader import Leader
from fleet import Entry, wire
from fleet.broker import FleetBroker, keys
from fleet.settings import Settings
from tests.waiting import wait_until

Replica = Callable[..., Leader]
START = datetime(2026, 3, 2, 1, 0, 10, tzinfo=UTC)
HOURLY = Entry("hourly", cron="0 * * * *", expires=timedelta(minutes=30), because="a test needs slots", actor="job")
SECONDLY = Entry(
    "secondly", every=timedelta(seconds=1), expires=timedelta(hours=1), because="a test needs slots", actor="job"
)


@pytest.fixture
def night() -> Iterator[time_machine.Traveller]:
    """Wall time stands still at START; the leader's monotonic clock is its own and runs on."""
    with time_machine.travel(START, tick=False) as travelled:
        yield travelled


@pytest.fixture
def leader(replica: Replica) -> Leader:
    started = replica(ttl=timedelta(seconds=60))
    wait_until(lambda: started.epoch)
    return started


class Ledger:
    """What the fire scripts left in Redis."""

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        self._client, self._namespace = client, namespace

    def lines(self) -> list[tuple[str, str, str, int]]:
        """(verdict, first slot, last slot, count), oldest first; slots as HH:MM:SS."""
        return [
            (line["verdict"], _clock(line["from"]), _clock(line["to"]), int(line["count"])) for line in self.raw_lines()
        ]

    def raw_lines(self) -> list[dict[str, str]]:
        found = self._client.xrange(keys.ledger(self._namespace))
        return [{key.decode(): value.decode() for key, value in fields.items()} for _, fields in found]

    def messages(self) -> list[Message[Any]]:
        """In the order in which a worker would take them up."""
        ids = self._client.lrange(keys.queue(self._namespace, "work"), 0, -1)
        bodies = self._client.hgetall(keys.bodies(self._namespace, "work"))
        assert set(bodies) == set(ids), "an id without a body, or a body without an id"
        return [Message.decode(bodies[message_id]) for message_id in ids]


def _clock(milliseconds: str) -> str:
    return wire.from_ms(int(milliseconds)).strftime("%H:%M:%S")


@pytest.fixture
def ledger(redis_client: redis.Redis, namespace: str) -> Ledger:
    return Ledger(redis_client, namespace)


def test_a_new_entry_owes_nothing_from_before(
    night: time_machine.Traveller, broker: FleetBroker, leader: Leader, ledger: Ledger
) -> None:
    Firer(broker, leader, [HOURLY]).pass_over()
    assert ledger.messages() == []
    assert ledger.lines() == [("new", "01:00:10", "01:00:10", 0)]
    night.move_to(START + timedelta(minutes=59))
    Firer(broker, leader, [HOURLY]).pass_over()
    assert ledger.messages() == [], "no slot has come since"


def test_a_slot_sends_one_message_that_carries_entry_slot_and_expiry(
    night: time_machine.Traveller, broker: FleetBroker, leader: Leader, ledger: Ledger
) -> None:
    firer = Firer(broker, leader, [HOURLY])
    firer.pass_over()
    night.move_to(datetime(2026, 3, 2, 2, 0, 3, tzinfo=UTC))
    for _ in range(3):
        firer.pass_over()
    (message,) = ledger.messages()
    slot = datetime(2026, 3, 2, 2, tzinfo=UTC)
    assert (message.actor_name, message.queue_name, message.args) == ("job", "work", ())
    assert message.options[wire.ENTRY] == "hourly"
    assert message.options[wire.SLOT] == wire.to_ms(slot)
    assert message.options[wire.EXPIRES_AT] == wire.to_ms(slot + timedelta(minutes=30)), "aged from its slot, not now"
    assert ledger.raw_lines()[-1] == {
        "entry": "hourly",
        "verdict": "fired",
        "from": str(wire.to_ms(slot)),
        "to": str(wire.to_ms(slot)),
        "count": "1",
        "token": leader.token,
        "epoch": "1",
    }


def test_after_an_outage_the_latest_slot_in_its_window_fires_once_and_older_ones_are_recorded(
    night: time_machine.Traveller, broker: FleetBroker, leader: Leader, ledger: Ledger
) -> None:
    wide = Entry("wide", cron="0 * * * *", expires=timedelta(hours=2, minutes=10), because="slots overlap", actor="job")
    firer = Firer(broker, leader, [wide])
    firer.pass_over()
    night.move_to(datetime(2026, 3, 2, 6, 5, tzinfo=UTC))
    firer.pass_over()
    firer.pass_over()
    (message,) = ledger.messages()
    assert wire.from_ms(message.options[wire.SLOT]) == datetime(2026, 3, 2, 6, tzinfo=UTC)
    assert ledger.lines()[1:] == [
        ("expired", "02:00:00", "03:00:00", 2),
        ("coalesced", "04:00:00", "05:00:00", 2),
        ("fired", "06:00:00", "06:00:00", 1),
    ]


@pytest.mark.parametrize(("late", "verdict"), [(timedelta(minutes=30), "fired"), (timedelta(minutes=31), "expired")])
def test_a_slot_fires_up_to_its_expiry_and_never_after(
    night: time_machine.Traveller,
    broker: FleetBroker,
    leader: Leader,
    ledger: Ledger,
    late: timedelta,
    verdict: str,
) -> None:
    firer = Firer(broker, leader, [HOURLY])
    firer.pass_over()
    night.move_to(datetime(2026, 3, 2, 2, tzinfo=UTC) + late)
    firer.pass_over()
    firer.pass_over()
    assert ledger.lines()[1:] == [(verdict, "02:00:00", "02:00:00", 1)]
    assert len(ledger.messages()) == (verdict == "fired")


def test_a_clock_set_back_fires_no_slot_again(
    night: time_machine.Traveller, broker: FleetBroker, leader: Leader, ledger: Ledger
) -> None:
    firer = Firer(broker, leader, [HOURLY])
    firer.pass_over()
    for minutes in (61, 30, 61):
        night.move_to(START + timedelta(minutes=minutes))
        firer.pass_over()
    assert len(ledger.messages()) == 1


class Term(Leader):
    """A leader that believes in its term whatever Redis says, as one between its check and its script does."""

    def leads(self) -> bool:
        return True


def test_a_deposed_leader_that_still_believes_in_its_term_sends_nothing_and_moves_nothing(
    night: time_machine.Traveller, broker: FleetBroker, leader: Leader, ledger: Ledger, redis_client: redis.Redis
) -> None:
    Firer(broker, leader, [HOURLY]).pass_over()
    deposed = Term(redis_client, broker.namespace, ttl=timedelta(seconds=6), renewal=timedelta(seconds=2))
    night.move_to(START + timedelta(hours=1))
    before = redis_client.hgetall(keys.marks(broker.namespace))
    Firer(broker, deposed, [HOURLY]).pass_over()
    assert ledger.messages() == []
    assert [line[0] for line in ledger.lines()] == ["new"]
    assert redis_client.hgetall(keys.marks(broker.namespace)) == before
    Firer(broker, leader, [HOURLY]).pass_over()
    assert len(ledger.messages()) == 1, "the slot is still the leader's to fire"


def test_a_follower_does_not_even_ask(broker: FleetBroker, ledger: Ledger, redis_client: redis.Redis) -> None:
    follower = Leader(redis_client, broker.namespace, ttl=timedelta(seconds=6), renewal=timedelta(seconds=2))
    Firer(broker, follower, [HOURLY, SECONDLY]).pass_over()
    assert ledger.lines() == [] and ledger.messages() == []


class MovedMeanwhile(Firer):
    """Reads the mark, and is overtaken by another replica before it sends."""

    overtaken_by: Firer

    def _judge(self, entry: Entry, mark: int | None) -> None:
        self.overtaken_by.pass_over()
        super()._judge(entry, mark)


def test_a_mark_that_moved_meanwhile_sends_nothing(
    night: time_machine.Traveller, broker: FleetBroker, leader: Leader, ledger: Ledger
) -> None:
    firer, late = Firer(broker, leader, [HOURLY]), MovedMeanwhile(broker, leader, [HOURLY])
    firer.pass_over()
    night.move_to(START + timedelta(hours=1))
    late.overtaken_by = firer
    late.pass_over()
    assert len(ledger.messages()) == 1
    assert [line[0] for line in ledger.lines()] == ["new", "fired"]


def test_two_replicas_that_race_for_many_slots_send_one_message_a_slot(
    broker: FleetBroker, leader: Leader, ledger: Ledger, redis_client: redis.Redis, redis_url: str
) -> None:
    """Both hold the leader's very token: only the mark can part them."""
    other = FleetBroker(lambda: Settings(redis_url=redis_url, namespace=broker.namespace), middleware=[])
    other.actors, other.queues = broker.actors, broker.queues
    twin = Term(redis_client, broker.namespace, ttl=timedelta(seconds=6), renewal=timedelta(seconds=2))
    twin.token, twin.epoch = leader.token, leader.epoch
    slots = 150

    def race(firer: Firer) -> None:
        for _ in range(slots):
            start.wait(10)
            firer.pass_over()

    with time_machine.travel(START, tick=False) as travelled:
        Firer(broker, leader, [SECONDLY]).pass_over()
        # The barrier's last arrival moves time on, so that both pass over the same new slot at once.
        start = threading.Barrier(2, action=lambda: travelled.shift(1))
        racers = [threading.Thread(target=race, args=(firer,)) for firer in _firers(broker, other, leader, twin)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join(30)
    fired = [message.options[wire.SLOT] for message in ledger.messages()]
    assert fired == [wire.to_ms(START + timedelta(seconds=second)) for second in range(1, slots + 1)]


def _firers(broker: FleetBroker, other: FleetBroker, leader: Leader, twin: Leader) -> list[Firer]:
    return [Firer(broker, leader, [SECONDLY]), Firer(other, twin, [SECONDLY])]
