"""A chain goes on while its number is below the allowance; at every instant there is one message of it, or none."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from fleet import Entry, by_hand, wire
from fleet import app as application
from fleet.allowance import allowance, read
from fleet.balance_by_hand import hold, release, switch
from fleet.broker import FleetBroker, dead, keys
from fleet.broker.reaper import reap
from fleet.chains import living, seed
from fleet.clock import clock
from fleet.elastic import Did
from fleet.errors import DeclarationInvalid
from fleet.settings import Settings
from fleet.window import window
from middleware import default_order
from tests.fleet.elastic_house import ENTRY, QUEUE, ElasticHouse, it_is, tonight
from tests.waiting import wait_until


@pytest.fixture
def house(redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ElasticHouse]:
    settings = Settings(redis_url=redis_url, namespace=namespace, database_url=None)
    broker = FleetBroker(lambda: settings, middleware=default_order())
    monkeypatch.setattr(application, "process_broker", lambda: broker)
    monkeypatch.setattr(application, "settings", lambda: settings)
    it_is(2)
    made = ElasticHouse(broker)
    yield made
    made.stop()
    clock.set_night(None)


def test_chains_drain_the_backlog_chunk_after_chunk_and_end_with_it(house: ElasticHouse) -> None:
    house.backlog = 102
    house.lease(2)
    assert seed(house.broker, ENTRY, 2) == 2
    house.start()
    house.until_idle()
    assert house.chunks - Counter({0: 1}) == {5: 20, 2: 1}
    assert house.most_at_once <= 2


@pytest.mark.parametrize(
    ("early", "lost", "why"),
    [
        (True, False, "its chunk ended early"),
        (False, True, "another delivery of its message has its row, and goes on"),
        (False, False, "nothing left"),
    ],
)
def test_a_chain_whose_chunk_ended_early_says_so_and_is_counted_and_what_its_rows_cost_is_not(
    house: ElasticHouse,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    early: bool,
    lost: bool,
    why: str,
) -> None:
    monkeypatch.setattr(house, "work", lambda size: Did(False, 2, early, lost))
    house.lease(1)
    seed(house.broker, ENTRY, 1)
    house.start()
    house.until_idle()
    client: Any = house.broker.client
    measures = keys.measures(house.broker.namespace, ENTRY.name)
    assert client.hgetall(measures) == ({b"early": b"1"} if early else {})
    assert (client.ttl(measures) > 0) is early
    (ended,) = [line for line in capsys.readouterr().out.splitlines() if "chain_ended" in line]
    assert why in ended


def test_a_chain_whose_number_is_not_below_the_allowance_is_not_sent_again_and_nothing_running_is_cut(
    house: ElasticHouse,
) -> None:
    house.backlog = 10_000
    house.lease(3)
    seed(house.broker, ENTRY, 3)
    house.gate.clear()
    house.start()
    wait_until(lambda: house.running == 3)
    house.lease(1, "hot")
    assert house.running == 3
    house.gate.set()
    wait_until(lambda: house.chains() == [0])
    assert (house.begun[1], house.begun[2]) == (1, 1)  # not sent to be told that it may not
    house.lease(0, "hot")
    house.until_idle()
    assert house.backlog > 0


def test_a_chunk_that_is_not_allowed_when_it_starts_does_nothing(house: ElasticHouse) -> None:
    house.backlog = 100
    house.lease(1)
    seed(house.broker, ENTRY, 4)
    house.lease(0, "hot")
    house.start()
    house.until_idle()
    assert house.chunks == {}


def test_a_chain_whose_number_is_below_zero_is_below_no_allowance(house: ElasticHouse) -> None:
    house.backlog = 100
    house.lease(0, "hot")
    house.broker.enqueue(house.actor.message_with_options(**{wire.ENTRY: ENTRY.name, wire.CHAIN: -1}))
    house.start()
    house.until_idle()
    assert house.chunks == {}


def test_a_chunk_that_fails_and_then_may_not_begin_again_has_what_it_took_given_back(house: ElasticHouse) -> None:
    house.backlog, house.failures = 5, 1
    house.lease(1)
    seed(house.broker, ENTRY, 1)
    house.gate.clear()
    house.start()
    wait_until(lambda: house.running == 1)
    house.lease(0)
    house.gate.set()
    house.until_idle()
    assert house.given_back == 1 and house.chunks.total() == 1


def test_a_seed_is_taken_only_if_no_message_of_its_chain_is_there(house: ElasticHouse) -> None:
    house.backlog = 100
    house.lease(4)
    assert seed(house.broker, ENTRY, 2) == 2
    assert seed(house.broker, ENTRY, 4) == 2
    assert seed(house.broker, ENTRY, 4) == 0
    assert house.chains() == [0, 1, 2, 3] == living(house.broker, ENTRY)
    house.gate.clear()
    house.start()
    wait_until(lambda: house.running == 4)
    assert seed(house.broker, ENTRY, 4) == 0


def test_many_that_seed_at_once_begin_each_chain_once(house: ElasticHouse) -> None:
    began: list[int] = []
    together = threading.Barrier(8)

    def one() -> None:
        together.wait()
        began.append(seed(house.broker, ENTRY, 4))

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(began) == 4
    assert house.chains() == [0, 1, 2, 3]


def test_a_chain_that_ended_is_seeded_again_under_the_next_generation(house: ElasticHouse) -> None:
    house.lease(1)
    house.start()
    for generation in (1, 2, 3):
        house.gate.clear()
        assert seed(house.broker, ENTRY, 1) == 1
        (message,) = house.bodies()
        assert (message.message_id, message.options[wire.GENERATION]) == (f"sort#0.{generation}", generation)
        house.gate.set()
        house.until_idle()


def test_with_a_lapsed_lease_chains_run_from_the_slot_to_the_day_and_not_before_or_after(house: ElasticHouse) -> None:
    house.backlog = 10_000
    house.start()
    for at, reason in (((2, 0), "blind"), ((3, 59), "blind"), ((6, 30), "blind"), ((8, 1), "closed")):
        it_is(*at)
        assert allowance(house.broker, ENTRY, clock.now()).reason == reason
        seed(house.broker, ENTRY, 4)
        house.until_idle()
        assert house.chunks == {}
    it_is(4)
    seed(house.broker, ENTRY, 4)
    wait_until(lambda: house.chunks[5] > 50)
    assert house.chains() == [0, 1, 2, 3]
    it_is(6, 30)
    house.until_idle()
    assert house.backlog > 0


def test_the_slots_message_seeds_the_night_where_nobody_decides_and_does_no_chunk_itself(house: ElasticHouse) -> None:
    house.backlog = 100
    it_is(4)
    house.gate.clear()
    house.start()
    house.send_slot()
    wait_until(lambda: house.chains() == [0, 1, 2, 3] and house.running == 4)
    house.gate.set()
    house.until_idle()
    assert house.backlog == 0


def test_the_slots_message_begins_no_more_than_the_balancer_allows(house: ElasticHouse) -> None:
    house.backlog = 100
    it_is(4)
    house.lease(0, "hot")
    house.start()
    house.send_slot()
    house.until_idle()
    assert house.chunks == {}


def test_a_message_that_a_person_fires_does_one_chunk_whatever_is_allowed(house: ElasticHouse) -> None:
    house.backlog = 100
    house.lease(0, "hot")
    house.start()
    house.actor.send()
    house.until_idle()
    assert house.chunks == {5: 1}


def test_called_outside_a_worker_it_does_all_that_is_left(house: ElasticHouse) -> None:
    house.backlog = 250
    house.actor()
    assert house.backlog == 0


def test_a_chunk_expires_with_its_night_and_is_as_old_as_its_last_end(house: ElasticHouse) -> None:
    house.backlog = 10_000
    house.lease(1)
    seed(house.broker, ENTRY, 1)
    (first,) = house.bodies()
    assert first.options[wire.EXPIRES_AT] == wire.to_ms(tonight(8))
    house.start()
    wait_until(lambda: house.chunks[5] > 5)
    house.gate.clear()
    wait_until(lambda: house.running == 1)
    (later,) = house.bodies()
    assert later.message_id == first.message_id
    assert later.message_timestamp > first.message_timestamp
    assert [later.options[name] for name in (wire.ENTRY, wire.CHAIN, wire.GENERATION)] == [ENTRY.name, 0, 1]
    assert later.options[wire.EXPIRES_AT] == wire.to_ms(tonight(8))


def test_a_chunk_that_fails_is_tried_again_by_its_lane_and_its_chain_is_not_doubled(house: ElasticHouse) -> None:
    house.backlog, house.failures = 50, 2
    house.lease(1)
    seed(house.broker, ENTRY, 1)
    house.start()
    house.until_idle()
    assert house.backlog == 0
    assert house.most_at_once == 1
    assert not house.broker.client.exists(keys.dead(house.broker.namespace, QUEUE))


def test_a_chain_whose_chunk_died_is_a_dead_letter_and_may_be_seeded_again(house: ElasticHouse) -> None:
    house.backlog, house.failures = 100, 3
    house.lease(1)
    seed(house.broker, ENTRY, 1)
    house.start()
    house.until_idle()
    assert house.broker.client.zcard(keys.dead(house.broker.namespace, QUEUE)) == 1
    assert seed(house.broker, ENTRY, 1) == 1
    house.until_idle()
    assert house.backlog == 0


def requeue_letters(house: ElasticHouse, most: int) -> None:
    broker = house.broker
    ids = broker.client.zrange(keys.dead(broker.namespace, QUEUE), 0, most - 1)
    places = [dead.Place(QUEUE, id.decode()) for id in ids]  # type: ignore[union-attr]
    assert list(dead.requeue(broker, places, a_second=1_000)) == ["moved"] * most


@pytest.mark.parametrize("letters", [1, 3])
def test_dead_letters_of_a_chain_that_are_queued_again_run_no_chunk_beside_the_living_one(
    house: ElasticHouse, letters: int
) -> None:
    house.lease(1)
    house.start()
    for _ in range(letters):
        house.backlog, house.failures = 100, 3
        assert seed(house.broker, ENTRY, 1) == 1
        house.until_idle()
    house.backlog = 10_000
    assert seed(house.broker, ENTRY, 1) == 1
    wait_until(lambda: house.chunks[5] > letters + 5)
    begun, living_one = house.begun[0], f"sort#0.{letters + 1}"
    requeue_letters(house, letters)
    wait_until(lambda: [one.message_id for one in house.bodies()] == [living_one] and house.begun[0] > begun + 20)
    assert house.most_at_once == 1
    house.lease(0, "hot")
    house.until_idle()


def test_a_chain_in_whose_place_another_is_begun_in_the_middle_of_its_chunk_does_not_go_on(house: ElasticHouse) -> None:
    house.backlog = 10_000
    house.lease(1)
    seed(house.broker, ENTRY, 1)
    house.gate.clear()
    house.start()
    wait_until(lambda: house.running == 1)
    house.broker.client.delete(keys.chains(house.broker.namespace, ENTRY.name))  # a failover forgot it
    house.broker.client.hset(keys.chains(house.broker.namespace, ENTRY.name), "0", "sort#0.9")
    house.gate.set()
    house.until_idle()
    assert house.chunks[5] == 1


def test_the_last_letter_of_a_chain_is_the_chain_when_it_is_queued_again(house: ElasticHouse) -> None:
    house.backlog, house.failures = 100, 3
    house.lease(1)
    seed(house.broker, ENTRY, 1)
    house.start()
    house.until_idle()
    requeue_letters(house, 1)
    house.until_idle()
    assert (house.backlog, house.most_at_once) == (0, 1)


def test_a_chain_of_which_redis_forgot_the_last_seed_goes_on(house: ElasticHouse) -> None:
    house.backlog = 100
    house.lease(1)
    seed(house.broker, ENTRY, 1)
    house.broker.client.delete(keys.chains(house.broker.namespace, ENTRY.name))
    house.start()
    house.until_idle()
    assert house.backlog == 0


def test_a_chain_whose_worker_was_reaped_in_its_chunk_runs_once_more_and_stays_one(house: ElasticHouse) -> None:
    house.backlog = 100
    house.lease(1)
    seed(house.broker, ENTRY, 1)
    house.gate.clear()
    house.start()
    wait_until(lambda: house.running == 1)
    worker = house._worker
    assert worker is not None
    reap(house.broker.client, house.broker.own_scripts, house.broker.namespace, worker.pump.worker_id, [QUEUE])
    wait_until(lambda: house.running == 2)  # the second delivery, beside the zombie
    house.gate.set()
    house.until_idle()
    assert house.most_at_once == 2
    assert house.backlog == 0
    assert seed(house.broker, ENTRY, 1) == 1


def test_while_redis_cannot_be_read_the_level_holds(house: ElasticHouse) -> None:
    house.lease(4)
    nowhere = FleetBroker(url="redis://127.0.0.1:1/0", namespace=house.broker.namespace)
    found = allowance(nowhere, ENTRY, tonight(2))
    assert (found.places, found.reason, found.fallback) == (0, "blind", True)
    assert allowance(nowhere, ENTRY, tonight(5)).places == 4


def test_a_persons_hold_stands_whoever_decides_and_when_nobody_does(house: ElasticHouse) -> None:
    house.backlog = 100
    it_is(4)
    hold(house.broker, ENTRY, tonight(5), by="ann", because="the bank asked for a quiet night")
    house.start()
    seed(house.broker, ENTRY, 4)
    house.until_idle()
    house.lease(4)
    seed(house.broker, ENTRY, 4)
    house.until_idle()
    assert house.chunks == {}
    assert allowance(house.broker, ENTRY, clock.now()).reason == "held"
    assert release(house.broker, ENTRY, **BY) is not None
    seed(house.broker, ENTRY, 4)
    house.until_idle()
    assert house.backlog == 0


BY = {"by": "ann", "because": "the bank asked for a quiet night"}


def test_a_hold_is_over_at_its_instant_though_redis_keeps_its_key_and_stands_where_none_can_be_read() -> None:
    held = json.dumps({**BY, "at": tonight(5).isoformat(), "until": tonight(6, 15).isoformat()}).encode()
    for hour, minute, found in ((6, 14, (0, "held")), (6, 15, (4, "blind"))):
        granted = read(ENTRY, tonight(hour, minute), None, held)
        assert (granted.places, granted.reason) == found
    assert read(ENTRY, tonight(6, 15), None, b"until the bank calls").reason == "held"


def test_a_paused_entry_begins_no_chunk_whoever_decides_and_when_nobody_does(house: ElasticHouse) -> None:
    house.backlog = 10_000
    it_is(4)
    house.start()
    seed(house.broker, ENTRY, 4)
    wait_until(lambda: house.chunks[5] > 5)
    by_hand.pause(house.broker, ENTRY.name, **BY)
    house.until_idle()
    done = house.chunks[5]
    house.lease(4)
    seed(house.broker, ENTRY, 4)
    house.send_slot()
    house.until_idle()
    assert house.chunks[5] == done
    found = allowance(house.broker, ENTRY, clock.now())
    assert (found.places, found.reason, found.fallback) == (0, "paused", False)
    assert by_hand.resume(house.broker, ENTRY.name, **BY) is not None
    house.backlog = 100
    seed(house.broker, ENTRY, 4)
    house.until_idle()
    assert house.backlog == 0


def test_a_pause_outlasts_a_hold_and_a_paused_entry_that_is_fired_does_one_chunk(house: ElasticHouse) -> None:
    house.backlog = 100
    it_is(4)
    by_hand.pause(house.broker, ENTRY.name, **BY)
    hold(house.broker, ENTRY, tonight(5), **BY)
    assert release(house.broker, ENTRY, **BY) is not None
    assert allowance(house.broker, ENTRY, clock.now()).reason == "paused"
    house.start()
    house.actor.send()
    house.until_idle()
    assert house.chunks == {5: 1}


def test_where_its_decisions_are_a_key_of_another_type_what_a_person_does_is_done_and_not_said_to_have_failed(
    house: ElasticHouse,
) -> None:
    house.broker.client.set(keys.decisions(house.broker.namespace, ENTRY.name), "no stream")
    hold(house.broker, ENTRY, tonight(5), **BY)
    assert allowance(house.broker, ENTRY, clock.now()).reason == "held"
    assert release(house.broker, ENTRY, **BY) is not None
    assert switch(house.broker, False, [ENTRY], **BY) is None
    assert switch(house.broker, True, [ENTRY], **BY) is not None


@pytest.mark.parametrize("until", [tonight(1), tonight(6, 16), tonight(30)])
def test_a_hold_is_from_now_to_the_deadline(house: ElasticHouse, until: datetime) -> None:
    with pytest.raises(DeclarationInvalid, match="to its deadline, 2026-11-30 06:15 UTC at the latest"):
        hold(house.broker, ENTRY, until, by="ann", because="the bank asked for a quiet night")


def test_what_runs_by_day_behind_its_deadline_is_held_to_the_end_of_its_night(house: ElasticHouse) -> None:
    it_is(6, 30)
    closes = window(ENTRY, clock.now()).closes
    told = {"by": "ann", "because": "people are at work before their day"}
    with pytest.raises(DeclarationInvalid, match=r"to its night's end, 2026-11-30 .* at the latest"):
        hold(house.broker, ENTRY, closes + timedelta(minutes=1), **told)
    hold(house.broker, ENTRY, closes, **told)
    assert allowance(house.broker, ENTRY, clock.now()).reason == "held"


@pytest.mark.parametrize("now", [replace(ENTRY, elastic=None), replace(ENTRY, name="sorting", actor="sort")])
def test_a_chain_that_a_deploy_left_over_ends_without_a_chunk(house: ElasticHouse, now: Entry) -> None:
    house.backlog = 100
    it_is(4)
    seed(house.broker, ENTRY, 2)
    house.broker.entries = {now.name: now}
    house.start()
    house.until_idle()
    assert house.chunks == {}
