"""Why a message waits and what happens next, in queues of a real Redis."""

from __future__ import annotations

import re
import threading
from typing import Any

import dramatiq
import pytest
from cryptography.fernet import Fernet
from dramatiq import Message

from fleet import entry_runs, wire
from fleet.broker import keys
from fleet.clock import clock
from fleet.explain import places
from fleet.payloads import PayloadEncoder
from fleet.workers.presence import Job, Presence, Report, present
from tests.fleet.explain.conftest import HOUR, MINUTE, SECOND, START, House, redis_id
from tests.waiting import wait_until


def test_a_message_whose_arguments_are_encrypted_is_explained_without_a_key(
    house: House,
) -> None:
    before = dramatiq.get_encoder()
    dramatiq.set_encoder(PayloadEncoder(lambda: (Fernet.generate_key().decode(),)))
    message = house.send()
    dramatiq.set_encoder(PayloadEncoder(lambda: ()))
    try:
        assert house.told(redis_id(message))[0].startswith("job of queue work")
        assert house.told(message.message_id)[1:] == house.told(redis_id(message))[1:]
    finally:
        dramatiq.set_encoder(before)


def test_a_message_that_waits_is_told_with_its_place_its_age_and_that_nobody_serves_it(house: House) -> None:
    house.send()
    message = house.send()
    house.send()
    first, *rest = house.told(redis_id(message))
    assert first.startswith("job of queue work, lane banks, sent ")
    assert rest == [
        "It waits behind 1 of 3; NO process serves lane banks: start `fleet work banks`.",
        "Nothing of work ended in the last minutes, so nobody can say when it starts.",
    ]


def test_a_message_is_found_by_the_id_that_send_returned_too(house: House) -> None:
    message = house.send()
    assert message.message_id != redis_id(message)
    assert house.told(message.message_id)[1:] == house.told(redis_id(message))[1:]


def test_when_it_should_start_is_told_by_how_many_end_and_that_it_would_be_too_late(house: House) -> None:
    go_on = threading.Event()
    house.work()
    sent = [house.send() for _ in range(30)]
    wait_until(lambda: not house.client.hlen(keys.bodies(house.broker.namespace, "work")))
    house.body = lambda: go_on.wait(20)
    wait_until(lambda: any(line.startswith("About") for line in house.told(redis_id(waiting(house)))), 30)
    sent += [house.send() for _ in range(30)]  # however the minutes fell, half a minute of work
    late = house.send(**{wire.EXPIRES_AT: wire.to_ms(clock.now() + SECOND)})
    house.send()
    said = house.said(redis_id(late))
    go_on.set()
    assert "end a minute: it should start at " in said
    assert "EXPIRES before it starts" in said


def waiting(house: House) -> Message[Any]:
    """A message with others before it."""
    for _ in range(2):
        house.send()
    return house.send()


def test_a_message_further_in_than_is_looked_is_said_to_be_so(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "LOOKED_AT", 3)
    sent = [house.send() for _ in range(10)]
    assert "behind 2 of 10" in house.said(redis_id(sent[2]))
    assert "behind 8 of 10" in house.said(redis_id(sent[8]))
    assert "beyond the first 3 and before the last 3 of 10" in house.said(redis_id(sent[5]))


def test_of_a_queue_of_four_hundred_thousand_only_its_ends_are_looked_at(house: House) -> None:
    ns = house.broker.namespace
    message = house.send()
    with house.client.pipeline(transaction=False) as pipe:
        for start in range(0, 200_000, 10_000):
            ids = [f"filler-{number}" for number in range(start, start + 10_000)]
            pipe.lpush(keys.queue(ns, "work"), *ids)
            pipe.rpush(keys.queue(ns, "work"), *ids)
        pipe.execute()
    assert "beyond the first 20,000 and before the last 20,000 of 400,001" in house.said(redis_id(message))


def test_a_message_that_expires_says_by_when_it_must_start(house: House) -> None:
    soon = house.send(**{wire.EXPIRES_AT: wire.to_ms(clock.now() + HOUR)})
    assert "If it has not started by" in house.said(redis_id(soon))
    past = house.send(**{wire.EXPIRES_AT: wire.to_ms(clock.now() - HOUR)})
    assert re.search(r"It expired 1h(\d+s)? ago: whoever takes it up drops it", house.said(redis_id(past)))


def test_a_delayed_message_says_until_when(house: House) -> None:
    message = house.broker.enqueue(house.job.message(), delay=3_600_000)
    said = house.said(redis_id(message))
    assert ("It is delayed until" in said and "(in 1h" in said) or "(in 59m" in said


def test_a_message_that_is_tried_again_says_what_failed_and_when_the_next_try_begins(house: House) -> None:
    def fail() -> None:
        raise ValueError("IBAN DE89 3704 0044 0532 0130 00")

    house.body = fail
    message = house.send()
    house.work()
    wait_until(lambda: house.client.zcard(keys.due(house.broker.namespace, "work")))
    said = house.said(redis_id(message))
    assert "Its try 1 failed with ValueError; the next begins at" in said
    assert "IBAN" not in said


def test_a_message_in_a_workers_hands_is_told_with_what_the_board_shows(house: House) -> None:
    go_on = threading.Event()
    house.body = lambda: go_on.wait(20)
    message = house.send()
    house.work()
    assert house.worker is not None
    worker = house.worker
    wait_until(lambda: worker.pump.held)
    assert "holds it and has not begun it, or just ended it" in house.said(redis_id(message))
    jobs = (Job(message.message_id, "job", clock.real_now() - 40 * SECOND, "work", "body", 2 * MINUTE, 3 * MINUTE),)
    report = Report("worker", "banks", pid=4711, host="night-1", worker_id=worker.pump.worker_id, jobs=jobs)
    presence = Presence(house.client, house.broker.namespace, lambda: report)
    presence.start()
    wait_until(lambda: present(house.client, house.broker.namespace))
    said = house.said(redis_id(message))
    presence.stop()
    go_on.set()
    assert "It runs on night-1, pid 4711, for 4" in said and "of its budget 2m/3m, phase body" in said


def test_a_suspect_says_that_it_runs_alone(house: House) -> None:
    message = house.send()
    ns, id = house.broker.namespace, redis_id(message)
    house.client.lrem(keys.queue(ns, "work"), 0, id)
    house.client.rpush(keys.suspects(ns, "work"), "another", id)
    house.client.hset(keys.losses(ns, "work"), id, 2)
    assert "It is a suspect: 2 processes died with it. It is to run alone" in house.said(id)
    assert "behind 1 other suspects" in house.said(id)


def test_a_dead_letter_says_why_and_what_to_do_and_nothing_personal(house: House) -> None:
    def fail() -> None:
        raise ValueError("IBAN DE89 3704 0044 0532 0130 00")

    house.body = fail
    message = house.send(max_retries=0)
    house.work()
    wait_until(lambda: house.client.zcard(keys.dead(house.broker.namespace, "work")))
    said = house.said(redis_id(message))
    assert "It is a DEAD LETTER since" in said and "failed, ValueError, after 1 tries" in said
    assert f"`fleet dead show {redis_id(message)}`" in said
    assert "`fleet dead requeue --queue work --actor job`" in said
    assert "IBAN" not in said
    assert house.told(message.message_id)[1:] == house.told(redis_id(message))[1:]


def test_a_message_that_is_done_or_never_was_says_so(house: House) -> None:
    said = house.said("0f6b7cb6-0fa1-4f0a-9a3f-3c1a3b0d6f11")
    assert "it is done, or was dropped or discarded, or was never sent" in said


def test_the_message_of_a_slot_that_is_done_says_how_it_went(house: House) -> None:
    slot = wire.to_ms(START)
    id = f"nightly@{slot}"
    house.broker.enqueue(house.job.message_with_options(entry="nightly", slot=slot).copy(message_id=id))
    house.work()
    wait_until(lambda: [run for run in entry_runs.read(house.broker, "nightly") if run.ended])
    assert "Its try 1 began" in house.said(id) and ": done, after" in house.said(id)
