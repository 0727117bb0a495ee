"""A person fires, pauses and resumes an entry, and finds in its ledger who did what and why."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import redis

from beat.fire import Firer
from beat.leader import Leader
from beat.now import Now
from fleet import Entry, by_hand, wire
from fleet.app import App
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from tests.beat.beaten import MINUTE, START, Beaten, StandingNight

MINUTELY = Entry("minutely", every=MINUTE, expires=MINUTE, because="a test needs slots", actor="job")
SKIPS = Entry("skips", every=MINUTE, expires=MINUTE, because="a test needs slots", actor="job", overlap="skip")
WHO = {"by": "ann", "because": "the bank is closed"}


@pytest.fixture
def app(broker: FleetBroker) -> App:
    actors: Any = broker.actors
    return App(Path(), MappingProxyType(actors), (), (MINUTELY, SKIPS))


@pytest.fixture
def firer(broker: FleetBroker, leader: Leader, night: StandingNight) -> Firer:
    made = Firer(broker, leader, [MINUTELY, SKIPS], Now())
    made.pass_over()
    return made


def verdicts(beaten: Beaten, entry: str = "minutely") -> list[str]:
    return [line[0] for line in beaten.verdicts(entry)]


def test_a_paused_entrys_slots_end_as_paused_and_are_not_sent_when_it_is_resumed(
    firer: Firer, night: StandingNight, beaten: Beaten, broker: FleetBroker
) -> None:
    for minute in range(1, 6):
        if minute == 2:
            assert by_hand.pause(broker, "minutely", **WHO) is None
        if minute == 5:
            by_hand.resume(broker, "minutely", by="bob", because="the bank is open")
        night.move_to(START + minute * MINUTE)
        firer.pass_over(["minutely"])  # a ring: nothing was looked at again since
    assert verdicts(beaten) == ["fired", "paused", "paused", "paused", "fired"]
    assert len([message for message in beaten.messages() if message.options[wire.ENTRY] == "minutely"]) == 2
    assert verdicts(beaten, "skips")[1] == "overlapped", "only the entry that was paused is"


def test_pausing_and_resuming_say_by_whom_and_why_and_how_it_was_before(
    firer: Firer, beaten: Beaten, broker: FleetBroker
) -> None:
    by_hand.pause(broker, "minutely", **WHO)
    before = by_hand.pause(broker, "minutely", by="bob", because="and so is the office")
    assert before is not None and (before.by, before.because) == ("ann", "the bank is closed")
    assert list(by_hand.paused(broker.client, broker.namespace)) == ["minutely"]
    resumed = by_hand.resume(broker, "minutely", by="cleo", because="all are back")
    assert resumed is not None and resumed.by == "bob"
    assert by_hand.resume(broker, "minutely", by="cleo", because="all are back") is None
    told = [(line.verdict, line.by, line.because) for line in beaten.lines("minutely")]
    assert told == [
        ("new", "", ""),
        ("pause", "ann", "the bank is closed"),
        ("pause", "bob", "and so is the office"),
        ("resume", "cleo", "all are back"),
    ]


def test_a_pause_whose_note_cannot_be_read_is_a_pause(
    firer: Firer, night: StandingNight, beaten: Beaten, broker: FleetBroker, redis_client: redis.Redis
) -> None:
    redis_client.hset(keys.paused(broker.namespace), "minutely", "because")
    assert by_hand.paused(broker.client, broker.namespace)["minutely"].because == "because"
    night.move_to(START + MINUTE)
    firer.pass_over()
    assert verdicts(beaten) == ["paused"]


def test_a_fire_by_hand_is_sent_at_once_under_an_id_of_its_own_and_leaves_the_mark_alone(
    firer: Firer, night: StandingNight, beaten: Beaten, broker: FleetBroker, app: App, redis_client: redis.Redis
) -> None:
    marks = redis_client.hgetall(keys.marks(broker.namespace))
    redis_client.sadd(keys.awaited(broker.namespace), "work")
    by_hand.pause(broker, "minutely", **WHO)
    sent = [by_hand.fire_now(app, broker, MINUTELY, by="ann", because="the audit asks") for _ in range(2)]
    assert redis_client.hgetall(keys.marks(broker.namespace)) == marks
    assert not redis_client.sismember(keys.awaited(broker.namespace), "work"), "nobody was woken"
    messages = beaten.messages()
    assert [message.message_id for message in messages] == sent and len(set(sent)) == 2
    for message in messages:
        assert message.message_id.startswith("minutely@now-")
        assert message.options["redis_message_id"] == message.message_id
        assert message.options[wire.ENTRY] == "minutely" and wire.SLOT not in message.options
        late = wire.from_ms(message.options[wire.EXPIRES_AT]) - clock.now()
        assert abs(late - MINUTE) < 0.1 * MINUTE
    assert len({message.options[wire.NONCE] for message in messages}) == 2
    line = beaten.lines("minutely")[-1]
    assert (line.verdict, line.by, line.because, line.count) == ("manual", "ann", "the audit asks", 0)
    by_hand.resume(broker, "minutely", **WHO)
    night.move_to(START + MINUTE)
    firer.pass_over()
    assert verdicts(beaten) == ["fired"], "the slot is still to come, whatever was fired by hand"


def test_a_run_that_was_fired_by_hand_overlaps_a_slot_until_it_has_ended(
    firer: Firer, night: StandingNight, beaten: Beaten, broker: FleetBroker, app: App
) -> None:
    by_hand.fire_now(app, broker, SKIPS, by="ann", because="")
    for minute in (1, 2):
        night.move_to(START + minute * MINUTE)
        firer.pass_over()
        beaten.end_all()
    assert verdicts(beaten, "skips") == ["overlapped", "fired"]
