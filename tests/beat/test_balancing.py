"""The leader sets allowances as leases, fenced by its epoch, and writes down what changed and why."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import redis
from dramatiq import Message
from redis.backoff import NoBackoff
from redis.retry import Retry

from beat import balancing
from beat.balancer import BalancerRules
from beat.balancing import Balancing
from beat.leader import Leader
from beat.now import Now
from fleet import Entry, Lane, by_hand, readings, wire
from fleet.allowance import Decision, allowance, decisions
from fleet.balance_by_hand import hold, release, switch
from fleet.broker import FleetBroker, keys
from fleet.broker.connection import client_from
from fleet.clock import Night, clock
from fleet.flow import Flow, minute_of
from fleet.quota import Quota
from tests.beat import counted
from tests.fleet.elastic_house import ENTRY, LANE, it_is, tonight, with_elastic
from tests.waiting import wait_until

ELASTIC = replace(with_elastic(ENTRY, backlog="tests.beat.counted:rows"), actor="job")
OTHER = replace(ELASTIC, name="read")
MODEL = Quota("model", places=10, reserve=5, because="the provider's tier answers ten at once")
ASKS = replace(with_elastic(ELASTIC, quota="model", cap=6), name="ask")
RULES = BalancerRules(cores=4)
PEOPLE = Lane("people", ("desk",), "a person", 1, 1, LANE.budget, LANE.retry, people=("desk",))
BY = {"by": "ann", "because": "the bank asked for a quiet night"}


class Balance:
    """A balancer whose minutes are the test's, on real readings."""

    def __init__(self, broker: FleetBroker, leader: Leader, redis_url: str) -> None:
        broker.lanes, broker.quotas = {"work": replace(LANE, nice=19), "desk": PEOPLE}, {"model": MODEL}
        self.broker, self.leader, self.now = broker, leader, Now()
        self.client = client_from(redis_url)
        self.decides(ELASTIC)

    def decides(self, *entries: Entry, costs: bool = True) -> None:
        """Have these be the elastic entries; what their rows cost is known, and next to nothing."""
        self.entries = self.broker.entries = {entry.name: entry for entry in entries}
        for name in self.entries if costs else ():
            took = {"chunks": 1, "rows": 5, "cpu_us": 50_000, "wall_us": 50_000}
            self.client.hset(keys.measures(self.broker.namespace, name), mapping=took)
        self.balancing = self.another()

    def another(self) -> Balancing:
        """The balancer of a replica that was just elected."""
        return Balancing(self.broker, self.client, self.leader, self.entries.values(), RULES, self.now)

    def minute(self, hour: int, minute: int = 0, *, read: bool = True) -> str:
        """One minute of the night; what it left of each entry: `places reason`."""
        it_is(hour, minute, 30)
        if read:
            readings.take(self.broker, "beat")
        self.balancing.tick()
        found = [allowance(self.broker, entry, clock.now()) for entry in self.entries.values()]
        return ", ".join(f"{one.places} {one.reason}" for one in found)

    def minutes(self, hour: int, minutes: range) -> list[str]:
        return [self.minute(hour, minute) for minute in minutes]

    def decided(self) -> list[Decision]:
        return decisions(self.broker, ELASTIC.name, tonight(0))

    def lease(self) -> dict[str, Any]:
        """The lease as it stands."""
        raw: Any = self.client.get(keys.allowance(self.broker.namespace, ELASTIC.name))
        return json.loads(raw or "{}")


@pytest.fixture
def balance(broker: FleetBroker, leader: Leader, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Balance]:
    monkeypatch.setattr(counted, "left", 100)
    monkeypatch.setattr(counted, "instead", None)
    yield Balance(broker, leader, redis_url)
    clock.set_night(None)


def test_each_minute_it_sets_a_lease_of_three_and_writes_down_what_changed(balance: Balance) -> None:
    assert balance.minutes(1, range(6)) == ["0 calm", "0 calm", "1 calm", "2 calm", "3 calm", "4 calm"]
    left: Any = balance.client.pttl(keys.allowance(balance.broker.namespace, ELASTIC.name))
    assert 170_000 < left <= 180_000
    assert [(one.places, one.reason) for one in balance.decided()] == [(n, "calm") for n in (0, 1, 2, 3, 4)]
    last = balance.decided()[-1]
    assert (last.at.hour, last.at.minute, last.epoch) == (1, 5, balance.leader.epoch)
    assert last.text.startswith("grown to 4 of 4: there is room, and nobody waits; 100 rows are left, ")
    assert last.text.endswith("deadline 06:15")
    assert last.numbers["before"] == 3


def test_an_allowance_that_stands_is_written_down_every_ten_minutes(balance: Balance) -> None:
    balance.minutes(1, range(30))
    assert [one.at.minute for one in balance.decided()] == [0, 2, 3, 4, 5, 15, 25]


def test_a_replica_that_was_deposed_meanwhile_sets_nothing(balance: Balance) -> None:
    balance.minute(1)
    before = balance.lease()
    balance.client.set(keys.leader(balance.broker.namespace), "another")
    balance.minute(1, 1)
    assert balance.lease() == before
    assert len(balance.decided()) == 1


def test_a_term_that_is_over_sets_nothing(balance: Balance) -> None:
    balance.client.incr(keys.epoch(balance.broker.namespace))
    balance.minute(1)
    assert balance.lease() == {}


def test_the_next_leader_goes_on_where_the_lease_stands(balance: Balance) -> None:
    balance.minutes(1, range(5))
    balance.balancing = balance.another()
    assert balance.minute(1, 5) == "4 calm"


def test_where_the_lease_has_lapsed_the_next_leader_begins_at_the_cron_slots_level(balance: Balance) -> None:
    balance.minutes(1, range(5))
    for hour, found in ((2, "0 calm"), (4, "4 calm")):
        balance.client.delete(keys.allowance(balance.broker.namespace, ELASTIC.name))
        balance.balancing = balance.another()
        assert balance.minute(hour, 10) == found


def test_switched_off_it_decides_nothing_and_the_cron_slots_level_holds_at_once(balance: Balance) -> None:
    balance.minutes(1, range(6))
    assert switch(balance.broker, False, [ELASTIC], **BY) is None
    assert allowance(balance.broker, ELASTIC, clock.now()).fallback
    assert balance.minute(1, 6) == "0 blind"
    assert balance.minute(4, 0) == "4 blind"
    off = switch(balance.broker, True, [ELASTIC], **BY)
    assert off is not None
    assert (off.by, off.because) == ("ann", BY["because"])
    assert balance.minute(4, 1) == "4 calm"


def test_what_a_person_does_is_written_down_beside_what_was_decided(balance: Balance) -> None:
    balance.minutes(1, range(6))
    entries = [ELASTIC]
    switch(balance.broker, False, entries, **BY)
    hold(balance.broker, ELASTIC, tonight(3), **BY)
    switch(balance.broker, True, entries, by="bob", because="the bank is done")
    switch(balance.broker, True, entries, by="bob", because="it was on already")
    balance.minute(1, 6)
    assert balance.decided()[-1].until == tonight(3)
    release(balance.broker, ELASTIC, by="bob", because="the bank is done")
    balance.minute(1, 7)
    level, held = "; nobody decides, so the cron slot's level holds", f"held by ann until 03:00 UTC: {BY['because']}"
    assert [(one.places, one.reason, one.text) for one in balance.decided()[5:-1]] == [
        (0, "blind", f"the balancer was switched off by ann: {BY['because']}{level}"),
        (0, "held", held),
        (0, "blind", f"the balancer was switched on by bob: the bank is done{level}"),
        (0, "held", held),
        (0, "held", held),
        (0, "held", "released by bob: the bank is done"),  # by the lease, until the next minute
    ]
    assert [one.epoch for one in balance.decided()[4:]] == [1, 0, 0, 0, 0, 1, 0, 1]


def test_what_a_person_did_and_took_back_within_a_minute_is_followed_by_what_holds_again(balance: Balance) -> None:
    balance.minutes(1, range(6))
    switch(balance.broker, False, [ELASTIC], **BY)
    switch(balance.broker, True, [ELASTIC], **BY)
    balance.minute(1, 6)
    hold(balance.broker, ELASTIC, tonight(3), **BY)
    release(balance.broker, ELASTIC, **BY)
    balance.minutes(1, range(7, 9))
    found = [(one.at.minute, one.places, one.reason, one.epoch) for one in balance.decided() if one.at.minute > 5]
    assert [one for one in found if one[-1]] == [(6, 4, "calm", 1), (7, 4, "calm", 1)]


def test_a_pause_that_stands_is_written_down_behind_a_switch_too(balance: Balance) -> None:
    it_is(4, 30)
    by_hand.pause(balance.broker, ELASTIC.name, **BY)
    switch(balance.broker, False, [ELASTIC], **BY)
    told = [(one.places, one.reason, one.text.partition(" by ")[0]) for one in balance.decided()]
    assert told == [(4, "blind", "the balancer was switched off"), (0, "paused", "paused")]


def test_decisions_are_told_in_order_of_time_also_where_the_clock_of_who_acted_was_behind(balance: Balance) -> None:
    balance.minute(1)
    it_is(0, 58)
    hold(balance.broker, ELASTIC, tonight(3), **BY)
    balance.minute(1, 1)
    for since, found in ((tonight(0), [58, 0, 1]), (tonight(0, 59), [58, 0, 1]), (tonight(1, 1), [0, 1])):
        assert [one.at.minute for one in decisions(balance.broker, ELASTIC.name, since)] == found


def test_a_hold_that_cannot_be_read_is_said_to_stand_until_it_is_released(balance: Balance) -> None:
    balance.client.set(keys.hold(balance.broker.namespace, ELASTIC.name), "until the bank calls")
    assert balance.minute(1) == "0 held"
    switch(balance.broker, False, [ELASTIC], **BY)
    told = [(one.text, one.until, one.endless) for one in balance.decided() if one.reason == "held"]
    assert told == [("held by ? until it is released: ?", None, True)] * 2


def test_a_release_says_that_nobody_decides_only_where_nobody_does(balance: Balance) -> None:
    assert balance.minute(1, read=False) == "0 blind"
    for words in ("", "; nobody decides, so the cron slot's level holds"):
        hold(balance.broker, ELASTIC, tonight(3), **BY)
        release(balance.broker, ELASTIC, **BY)
        assert balance.decided()[-1].text == f"released by ann: {BY['because']}{words}"
        balance.client.delete(keys.allowance(balance.broker.namespace, ELASTIC.name))


def test_what_a_release_leaves_allowed_is_renewed_and_only_a_hold_has_an_end(balance: Balance) -> None:
    balance.minutes(1, range(6))
    hold(balance.broker, ELASTIC, tonight(3), **BY)
    release(balance.broker, ELASTIC, **BY)
    found = [(one.places, one.reason, one.until) for one in balance.decided()[-2:]]
    assert found == [(0, "held", tonight(3)), (4, "calm", None)]


def test_switched_off_between_the_look_and_the_lease_it_sets_nothing(
    balance: Balance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def switched_off_meanwhile() -> int:
        switch(balance.broker, False, [ELASTIC], **BY)
        return 100

    monkeypatch.setattr(counted, "instead", switched_off_meanwhile)
    balance.minute(1)
    assert balance.lease() == {}


def test_a_person_holds_an_entry_whoever_decides_and_its_release_begins_from_nothing(balance: Balance) -> None:
    balance.minutes(1, range(6))
    hold(balance.broker, ELASTIC, tonight(3), **BY)
    assert balance.minute(1, 6) == "0 held"
    assert balance.decided()[-1].text == f"held by ann until 03:00 UTC: {BY['because']}"
    assert release(balance.broker, ELASTIC, **BY) is not None
    assert balance.minutes(1, range(7, 11)) == ["0 calm", "0 calm", "1 calm", "2 calm"]


def test_a_paused_entry_is_allowed_nothing_and_begins_from_nothing_when_it_is_resumed(balance: Balance) -> None:
    balance.minutes(1, range(6))
    by_hand.pause(balance.broker, ELASTIC.name, **BY)
    assert balance.minute(1, 6) == "0 paused"
    last = balance.decided()[-1]
    assert (last.places, last.reason) == (0, "paused")
    assert last.text == f"paused by ann since 2026-11-30 01:05 UTC: {BY['because']}"
    assert by_hand.resume(balance.broker, ELASTIC.name, **BY) is not None
    assert balance.minutes(1, range(7, 11)) == ["0 calm", "0 calm", "1 calm", "2 calm"]


def of_both(balance: Balance, minutes: range) -> list[tuple[int, int]]:
    found = []
    for minute in minutes:
        balance.minute(1, minute)
        found.append(tuple(allowance(balance.broker, one, clock.now()).places for one in (ELASTIC, OTHER)))
    return found  # type: ignore[return-value]


def test_a_core_that_one_entry_is_allowed_is_not_granted_to_another(balance: Balance) -> None:
    balance.decides(ELASTIC, OTHER)
    found = of_both(balance, range(12))
    assert max(map(sum, found)) == 4 == sum(found[-1])
    assert min(found[-1]) >= 1


def test_an_entry_that_has_nothing_left_or_is_paused_takes_nothing_from_another(
    balance: Balance, monkeypatch: pytest.MonkeyPatch
) -> None:
    balance.decides(ELASTIC, OTHER)
    by_hand.pause(balance.broker, ELASTIC.name, **BY)
    assert of_both(balance, range(8))[-1] == (0, 4)
    by_hand.resume(balance.broker, ELASTIC.name, **BY)
    monkeypatch.setattr(counted, "left", 0)
    assert of_both(balance, range(8, 16))[-1] == (4, 4)


def test_chains_that_mostly_wait_for_a_model_leave_their_cores_to_others(balance: Balance) -> None:
    balance.decides(ELASTIC, OTHER)
    for chunks in range(8):
        for entry, cpu_us in ((ELASTIC, 1_000_000), (OTHER, 10_000_000)):
            took = {"chunks": chunks, "rows": 50 * chunks, "cpu_us": cpu_us * chunks, "wall_us": 10_000_000 * chunks}
            balance.client.hset(keys.measures(balance.broker.namespace, entry.name), mapping=took)
        found = of_both(balance, range(chunks, chunks + 1))
    assert found == [(4, 3)]


def test_it_is_hot_while_people_wait_for_their_jobs_to_start(balance: Balance) -> None:
    balance.minutes(1, range(6))
    flow = Flow(balance.client, balance.broker.namespace)
    flow.started("desk", 2_000)
    flow.started("work", 3_600_000)
    flow._flush()
    assert balance.minute(1, 6) == "2 hot"
    text = balance.decided()[-1].text
    assert text.startswith(
        "held at 2 of 4: people waited 1.4 s for their jobs to start; grows again after 3 calm minutes"
    )


def test_what_was_uploaded_into_an_elastic_lane_and_waits_for_its_like_is_no_heat(balance: Balance) -> None:
    lane = replace(LANE, queues=("work", "uploads"), people=("uploads",), nice=19)
    balance.broker.lanes = {"work": lane, "uploads": lane, "desk": PEOPLE}
    balance.minutes(1, range(6))
    flow = Flow(balance.client, balance.broker.namespace)
    flow.started("uploads", 3_600_000)
    flow._flush()
    assert balance.minute(1, 6) == "4 calm"


def test_cores_that_other_lanes_use_are_not_there(balance: Balance) -> None:
    balance.minutes(1, range(6))
    used = {"l:people:cpu_us": 60_000_000 * 4, "l:lane:cpu_us": 60_000_000 * 9}
    balance.client.hset(keys.flow(balance.broker.namespace, minute_of(tonight(1, 5))), mapping=used)
    assert balance.minute(1, 6) == "2 free"
    assert "other lanes use 4.0 of 4 cores" in balance.decided()[-1].text


def test_what_a_row_costs_is_learned_from_full_chunks_and_the_deadline_has_its_way(
    balance: Balance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted, "left", 18_000)
    balance.client.hset(
        keys.measures(balance.broker.namespace, ELASTIC.name),
        mapping={"chunks": 10, "rows": 50, "cpu_us": 5_000_000, "wall_us": 100_000_000},
    )
    assert balance.minute(1) == "3 floor"
    assert balance.decided()[-1].numbers["cost"] == 2.0
    assert "18,000 rows of 2 s are not done by 06:15 with fewer" in balance.decided()[-1].text


def test_what_a_row_waited_for_a_core_is_not_its_cost(balance: Balance) -> None:
    """Else a busy machine would make each row dear, and the deadline would want still more chains on it."""
    measures = keys.measures(balance.broker.namespace, ELASTIC.name)
    took = {"chunks": 10, "rows": 50, "cpu_us": 5_000_000, "wall_us": 100_000_000, "waited_us": 90_000_000}
    balance.client.hset(measures, mapping=took)
    balance.minute(1)
    assert balance.decided()[-1].numbers["cost"] == 0.2
    assert balance.lease()["learned"] == {"cost": 0.2, "share": 0.5}


def test_the_next_leader_knows_what_was_measured_and_does_not_measure_the_whole_night_again(balance: Balance) -> None:
    balance.minute(1)
    known = balance.lease()["learned"]
    took = {"chunks": 2, "rows": 10, "cpu_us": 50_000, "wall_us": 900_000}  # measured long ago, on a busy machine
    balance.client.hset(keys.measures(balance.broker.namespace, ELASTIC.name), mapping=took)
    balance.balancing = balance.another()
    balance.minute(1, 1)
    assert balance.lease()["learned"] == known == {"cost": 0.01, "share": 1.0}
    assert balance.decided()[-1].numbers["cost"] == 0.01


def test_a_lease_of_a_release_that_measured_otherwise_hands_over_its_state_all_the_same(balance: Balance) -> None:
    balance.minutes(1, range(5))
    lease = {name: value for name, value in balance.lease().items() if name != "learned"}
    for learned in ({}, {"learned": [1]}, {"learned": {"cost": 1e300, "share": 1}}, {"learned": {"cost": "dear"}}):
        balance.client.set(keys.allowance(balance.broker.namespace, ELASTIC.name), json.dumps(lease | learned))
        balance.balancing = balance.another()
        assert balance.minute(1, 5) == "4 calm"


def test_chunks_that_ended_early_since_the_minute_before_are_told_and_no_end_is_promised(balance: Balance) -> None:
    measures = keys.measures(balance.broker.namespace, ELASTIC.name)
    took = {"chunks": 10, "rows": 50, "cpu_us": 5_000_000, "wall_us": 5_000_000, "early": 7}
    balance.client.hset(measures, mapping=took)  # a night before
    balance.minutes(1, range(3))
    assert "finishes" in balance.decided()[-1].text
    balance.client.hincrby(measures, "early", 2)
    balance.minute(1, 3)
    last = balance.decided()[-1]
    assert (last.places, last.numbers["ended_early"], last.numbers["cost"]) == (2, 2, 0.1)
    assert (
        "its chunks end early: nobody answers, or people have the places" in last.text and "finishes" not in last.text
    )


@pytest.mark.parametrize("why", ["switched off", "another led"])
def test_chunks_that_ended_early_while_it_did_not_decide_are_not_told(balance: Balance, why: str) -> None:
    balance.minutes(1, range(3))
    if why == "switched off":
        switch(balance.broker, False, [ELASTIC], **BY)
        balance.minute(1, 3)
    balance.client.hincrby(keys.measures(balance.broker.namespace, ELASTIC.name), "early", 9)
    if why == "switched off":
        switch(balance.broker, True, [ELASTIC], **BY)
    else:
        balance.leader.epoch = balance.client.incr(keys.epoch(balance.broker.namespace))  # elected again
    balance.minutes(1, range(4, 6))
    balance.client.hincrby(keys.measures(balance.broker.namespace, ELASTIC.name), "early", 2)
    balance.minute(1, 6)
    early = {one.at.minute: one.numbers.get("ended_early") for one in balance.decided()}
    assert (early[4], early[6]) == (0, 2)


def test_a_backlog_that_cannot_be_counted_makes_that_entry_blind_and_is_said_once(
    balance: Balance, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_count() -> int:
        raise OSError("no route to the database")

    monkeypatch.setattr(counted, "instead", no_count)
    assert balance.minutes(3, range(3)) == ["0 blind"] * 3
    assert balance.minute(4) == "4 blind"
    monkeypatch.setattr(counted, "instead", None)
    assert balance.minute(4, 1) == "4 calm"
    said = capsys.readouterr().out
    assert said.count("balancer_blind") == 1 == said.count("balancer_sees_again")
    assert "no route to the database" in said


@pytest.mark.parametrize("why", ["closed", "held"])
def test_it_sees_again_only_when_its_backlog_was_counted_whatever_else_the_minute_says(
    balance: Balance, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], why: str
) -> None:
    def no_count() -> int:
        raise OSError("no route to the database")

    monkeypatch.setattr(counted, "instead", no_count)
    hour = 9
    if why == "held":
        it_is(3)
        hold(balance.broker, ELASTIC, tonight(4), **BY)
        hour = 3
    assert balance.minutes(hour, range(1, 5)) == [f"0 {why}"] * 4
    said = capsys.readouterr().out
    assert (said.count("balancer_blind"), said.count("balancer_sees_again")) == (1, 0)
    monkeypatch.setattr(counted, "instead", None)
    balance.minutes(hour, range(5, 7))
    said = capsys.readouterr().out
    assert (said.count("balancer_blind"), said.count("balancer_sees_again")) == (0, 1)


def test_without_fresh_readings_it_is_the_cron(balance: Balance) -> None:
    assert balance.minute(1, read=False) == "0 blind"
    assert balance.minutes(1, range(1, 4)) == ["0 calm", "0 calm", "1 calm"]
    stored = keys.readings(balance.broker.namespace)
    for ago, found in ((100, "2 calm"), (185, "0 blind")):
        balance.client.hset(stored, "at", wire.to_ms(clock.real_now() - timedelta(seconds=ago)))
        assert balance.minute(1, 4, read=False) == found


def test_readings_that_stand_still_under_fresh_stamps_while_work_is_in_flight_are_not_believed(
    balance: Balance,
) -> None:
    balance.client.hset(keys.bodies(balance.broker.namespace, "work"), "held", "a body that some worker holds")
    assert balance.minutes(1, range(5)) == ["0 calm", "0 calm", "1 calm", "2 calm", "3 calm"]
    frozen: Any = balance.client.hget(keys.readings(balance.broker.namespace), "reading")

    def minute(number: int) -> str:
        it_is(1, number, 30)
        readings.take(balance.broker, "beat")
        balance.client.hset(keys.readings(balance.broker.namespace), "reading", frozen)
        return balance.minute(1, number, read=False)

    assert [minute(number).split()[1] for number in range(5, 12)].index("blind") <= 5
    assert minute(12) == "0 blind"


def test_ages_that_grow_while_no_count_moves_are_not_believed_and_one_that_moves_is(balance: Balance) -> None:
    ns, flow = balance.broker.namespace, Flow(balance.client, balance.broker.namespace)
    balance.client.hset(keys.bodies(ns, "work"), "held", "a body that some worker holds")
    sent = wire.to_ms(clock.real_now())
    waits = Message("desk", "job", (), {}, {}, "waits", sent).encode()  # its age grows
    balance.client.hset(keys.bodies(ns, "desk"), "waits", waits)
    balance.client.rpush(keys.queue(ns, "desk"), "waits")
    for number in range(8):
        flow.ran("work", "job", wall=0.1, cpu=0.001 * number, ended=number % 2 == 0)
        it_is(1, number, 30)
        flow._flush()
        assert not balance.minute(1, number).endswith("blind")
    found = [balance.minute(2, number) for number in range(7)]

    def age() -> timedelta | None:
        return readings.take(balance.broker, "beat").queues["desk"].oldest_age

    first = age()
    wait_until(lambda: age() != first)
    assert [one.endswith("blind") for one in found] == [False] * 5 + [True] * 2


def test_a_night_that_is_played_fast_has_shorter_leases(balance: Balance) -> None:
    clock.set_night(Night(origin=tonight(1), anchor=clock.real_now(), rate=60.0))
    readings.take(balance.broker, "beat")
    balance.balancing.tick()
    left: Any = balance.client.pttl(keys.allowance(balance.broker.namespace, ELASTIC.name))
    assert 0 < left <= 3_000


@pytest.mark.parametrize("part", ["bound_statements", "look"])
def test_its_thread_decides_by_itself_and_one_minute_that_breaks_is_not_the_last(
    balance: Balance, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    broken = threading.Event()

    def breaks_once() -> Any:
        if not broken.is_set():
            broken.set()
            raise RuntimeError("a fault of ours")
        return whole()

    where = balance.balancing._observer if part == "look" else balancing
    whole: Any = getattr(where, part)
    monkeypatch.setattr(where, part, breaks_once)
    clock.set_night(Night(origin=tonight(1), anchor=clock.real_now(), rate=600.0))
    balance.balancing.start()
    wait_until(lambda: balance.lease().get("epoch") is None and balance.decided())
    balance.balancing.stop()
    assert broken.is_set()


def test_a_key_of_another_type_is_found_before_anything_is_written_and_is_its_entrys_own(
    balance: Balance, capsys: pytest.CaptureFixture[str]
) -> None:
    balance.decides(ELASTIC, OTHER)
    decided = keys.decisions(balance.broker.namespace, ELASTIC.name)
    balance.client.set(decided, "no stream")
    assert balance.minutes(1, range(3)) == ["0 blind, 0 calm", "0 blind, 0 calm", "0 blind, 1 calm"]
    assert balance.lease() == {}
    balance.client.delete(decided)
    assert balance.minute(1, 3) == "0 calm, 2 calm"
    said = capsys.readouterr().out
    assert said.count("balancer_blind") == 1 == said.count("balancer_sees_again")


@pytest.mark.parametrize(("key", "found"), [(keys.measures, "0 blind, 0 calm"), (keys.allowance, "0 calm, 0 calm")])
def test_an_entry_of_which_something_cannot_be_read_is_at_its_level_and_the_others_are_decided(
    balance: Balance, key: Any, found: str
) -> None:
    balance.decides(ELASTIC, OTHER)
    balance.client.delete(key(balance.broker.namespace, ELASTIC.name))
    balance.client.rpush(key(balance.broker.namespace, ELASTIC.name), "no such thing")
    assert balance.minute(1) == found


def test_it_asks_over_a_client_of_its_own_alone(balance: Balance, monkeypatch: pytest.MonkeyPatch) -> None:
    balance.decides(ELASTIC, ASKS)
    it_is(1)
    readings.take(balance.broker, "beat")
    monkeypatch.setitem(balance.broker.__dict__, "client", redis.Redis(port=1, retry=Retry(NoBackoff(), 0)))
    balance.balancing.tick()
    assert balance.lease()["reason"] == "calm"


def test_a_backlog_whose_rows_cost_nobody_knows_what_has_one_chain_from_its_slot_on(balance: Balance) -> None:
    balance.decides(OTHER, costs=False)
    assert balance.minute(1) == "0 calm"
    assert balance.minute(4) == "1 floor"


def test_while_the_servers_clock_is_doubted_nobody_decides_and_no_lease_is_left(balance: Balance) -> None:
    heard, then = balance.now.heard, clock.monotonic()
    for ahead in (0.0, -3600.0):
        heard(then + ahead, then, then)
    lease = keys.allowance(balance.broker.namespace, ELASTIC.name)
    balance.client.set(lease, json.dumps({"places": 0, "reason": "closed", "until": wire.to_ms(tonight(8))}))
    assert balance.minute(4, 30) == "4 blind"
    wait_until(lambda: not balance.client.exists(lease))
    heard(then, then, then)
    assert balance.minute(4, 31) == "4 calm"
    assert balance.lease()["places"] == 4


def test_while_the_clock_is_doubted_who_was_deposed_meanwhile_leaves_its_successors_lease(
    balance: Balance, monkeypatch: pytest.MonkeyPatch
) -> None:
    balance.minutes(1, range(3))
    before = balance.lease()
    balance.client.set(keys.leader(balance.broker.namespace), "another")
    monkeypatch.setattr(Now, "doubt", "the clock of Redis jumped")
    balance.balancing.tick()
    time.sleep(0.01)
    assert balance.lease() == before


def test_a_hold_is_over_at_its_instant_by_the_fleets_clock_though_its_key_stands(balance: Balance) -> None:
    it_is(1)
    hold(balance.broker, ELASTIC, tonight(3), **BY)
    assert balance.minute(2, 59) == "0 held"
    assert balance.minute(3, 0) == "0 calm"
