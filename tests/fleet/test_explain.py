"""Why is this waiting, and what happens next: messages, entries and lanes, in queues of a real Redis."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from dramatiq import Message

from fleet import Budget, Elastic, Entry, Lane, Retry, alerts, by_hand, entry_runs, queue, wire
from fleet import app as application
from fleet.alerts import Finding, Rule
from fleet.app import App
from fleet.broker import FleetBroker, keys
from fleet.clock import Night, clock
from fleet.entry_runs import Run
from fleet.explain import MOST_LINES, NothingNamed, explain, places
from fleet.settings import Settings
from fleet.workers.presence import Job, Presence, Report, present
from fleet.workers.worker import FleetWorker
from middleware import default_order
from tests.waiting import wait_until

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
START = datetime(2026, 3, 2, 1, 0, tzinfo=UTC)
BUDGET = Budget(2 * MINUTE, 3 * MINUTE, because="no job of a test comes near it")
RETRY = Retry(attempts=3, first=HOUR, longest=HOUR)
LANE = Lane("banks", ["work"], "a bank", processes=2, threads=4, budget=BUDGET, retry=RETRY)  # type: ignore[arg-type]
NIGHTLY = Entry("nightly", cron="10 3 * * *", expires=2 * HOUR, because="banks have closed their day", actor="job")
SWEEP = Entry(
    "sweep",
    cron="0 4 * * *",
    expires=2 * HOUR,
    because="before the morning invoices",
    actor="job",
    elastic=Elastic((time(0, 30), time(6, 15)), time(7), time(4), "books:rows", 100, 4, "the night has room for it"),
)


class House:
    """An application of one lane and one actor, whose body the test gives."""

    def __init__(self, broker: FleetBroker, client: redis.Redis) -> None:
        self.broker, self.client = broker, client
        self.body: Callable[[], object] = lambda: None
        self.job = queue("work").actor(name="job")(lambda: self.body())
        broker.lanes, broker.entries = {"work": LANE}, {one.name: one for one in (NIGHTLY, SWEEP)}
        self.app = App(Path(), broker.actors, (LANE,), (NIGHTLY, SWEEP))  # type: ignore[arg-type]
        self.worker: FleetWorker | None = None

    def send(self, **options: Any) -> Message[Any]:
        return self.broker.enqueue(self.job.message_with_options(**options), delay=options.pop("delay", None))

    def work(self) -> None:
        self.worker = FleetWorker(self.broker, worker_timeout=50, worker_threads=1)
        self.worker.start()

    def told(self, wanted: str) -> list[str]:
        """The lines of the only explanation."""
        [found] = explain(self.app, self.broker, wanted)
        assert 0 < len(found.lines) <= MOST_LINES
        return list(found.lines)

    def said(self, wanted: str) -> str:
        return "\n".join(self.told(wanted))


def redis_id(message: Message[Any]) -> str:
    return str(message.options["redis_message_id"])


@pytest.fixture
def house(
    redis_url: str, redis_client: redis.Redis, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[House]:
    settings = Settings(redis_url=redis_url, namespace=namespace, database_url=None)
    broker = FleetBroker(lambda: settings, middleware=default_order())
    monkeypatch.setattr(application, "process_broker", lambda: broker)
    monkeypatch.setattr(application, "settings", lambda: settings)
    made = House(broker, redis_client)
    yield made
    if made.worker is not None:
        made.worker.stop()
    clock.set_night(None)


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
    assert sent
    late = house.send(**{wire.EXPIRES_AT: wire.to_ms(clock.now() + SECOND)})
    for _ in range(3):
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
    assert "It expired 1h ago: whoever takes it up drops it" in house.said(redis_id(past))


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


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("bank", "Did you mean the lane banks"),
        ("nihgtly", "Did you mean the entry nightly"),
        ("job", "It is an actor; `fleet jobs` shows its budget, `fleet explain banks` its lane"),
        ("zzzzzz", "Give the id of a message or a run"),
    ],
)
def test_an_unknown_name_is_answered_with_what_was_meant_of_any_kind(house: House, wanted: str, hint: str) -> None:
    with pytest.raises(NothingNamed, match="no lane, entry, message or run") as raised:
        explain(house.app, house.broker, wanted)
    assert hint in str(raised.value)


def test_a_name_that_means_two_things_is_explained_as_both(house: House) -> None:
    app = App(
        Path(),
        house.app.actors,
        (LANE,),
        (Entry("banks", every=HOUR, expires=HOUR, because="a bank opens", actor="job"),),
    )
    assert [one.kind for one in explain(app, house.broker, "banks")] == ["lane", "entry"]


def test_an_entry_says_when_it_comes_what_became_of_it_and_how_long_it_takes(house: House) -> None:
    clock.set_night(Night(origin=START, anchor=clock.real_now(), rate=0.001))
    key = keys.ledger(house.broker.namespace, "nightly")
    for verdict, day in (("expired", 1), ("fired", 0)):
        at = wire.to_ms(START - timedelta(days=day) - 22 * HOUR + 10 * MINUTE)
        house.client.xadd(key, {"verdict": verdict, "from": at, "to": at, "count": 1})
    for number, minutes in enumerate((2, 4)):
        began = START - 21 * HOUR + number * HOUR
        over = began + minutes * MINUTE
        entry_runs.write(house.broker, Run("nightly", f"{number}", "m", None, 1, "w", began, over, over, "done"))
    assert house.told("nightly") == [
        "cron 10 3 * * * (UTC), lane banks: banks have closed their day",
        "Next slot 03:10 (in 2h10m); it may start until 2h after that; NO beat leads, so no slot fires.",
        "Last verdicts, newest first: Sun 01 Mar 03:10 fired; Sat 28 Feb 03:10 expired.",
        "Last run began Sun 01 Mar 05:00: done after 4m; p50 2m, p95 4m of 2; soft budget 2m.",
    ]


def test_an_entry_that_is_paused_says_by_whom(house: House) -> None:
    by_hand.pause(house.broker, "nightly", by="maria", because="the mail host moves")
    assert "PAUSED by maria since" in house.said("nightly") and "`fleet resume nightly`" in house.said("nightly")


def test_an_entry_whose_message_waits_says_where(house: House) -> None:
    house.send()
    id = by_hand.fire_now(house.app, house.broker, NIGHTLY, by="maria", because="the audit was late")
    assert f"Its message that a person sent waits behind 1 of 2 in work: `fleet explain {id}`." in house.said("nightly")


def test_the_leading_beat_is_named(house: House) -> None:
    report = Report("beat", "beat", pid=1, host="night-2", leads=True)
    presence = Presence(house.client, house.broker.namespace, lambda: report)
    presence.start()
    wait_until(lambda: present(house.client, house.broker.namespace))
    said = house.said("nightly")
    presence.stop()
    assert "the beat on night-2 leads" in said


def decide(house: House, at: datetime, places: int, reason: str, text: str, **numbers: Any) -> None:
    ns, now = house.broker.namespace, clock.now()
    row = {"at": wire.to_ms(at), "places": places, "reason": reason, "text": text, "epoch": 1}
    house.client.xadd(keys.decisions(ns, "sweep"), {**row, "numbers": json.dumps(numbers)})
    lease = {"places": places, "reason": reason, "until": wire.to_ms(now + 3 * MINUTE)}
    house.client.set(keys.allowance(ns, "sweep"), json.dumps(lease), ex=600)


def test_elastic_work_says_what_it_is_held_at_since_when_why_and_by_when_it_ends(house: House) -> None:
    clock.set_night(Night(origin=START + 46 * MINUTE, anchor=clock.real_now(), rate=0.001))
    decide(house, START + 2 * MINUTE, 4, "calm", "nobody waits")
    ends = (START + 3 * HOUR + 40 * MINUTE).isoformat()
    decide(house, START + 14 * MINUTE, 2, "hot", "realtime waited 1.8 s", finishes=ends)
    decide(house, START + 15 * MINUTE, 2, "hot", "realtime waited 1.8 s", finishes=ends)
    assert (
        "Elastic: held at 2 of 4 since 01:14: realtime waited 1.8 s; it grows again after a few calm minutes; "
        "finishes 04:40 at this pace, deadline 06:15." in house.told("sweep")
    )


def test_elastic_work_that_nobody_decides_on_says_that_the_cron_slot_stands(house: House) -> None:
    clock.set_night(Night(origin=START, anchor=clock.real_now(), rate=0.001))
    assert "nobody decides, so the cron slot stands: 0 of 4 chains from 04:00 to 07:00" in house.said("sweep")
    clock.set_night(Night(origin=START - 45 * MINUTE, anchor=clock.real_now(), rate=0.001))
    assert "its window opens at 00:30 (in 1" in house.said("sweep")


def test_a_lane_says_who_serves_it_what_runs_how_old_and_what_is_wrong(house: House) -> None:
    for _ in range(3):
        house.send()
    jobs = (Job("m-1", "job", clock.real_now() - 150 * SECOND, "work", "body", 2 * MINUTE, 3 * MINUTE),)
    reports = [
        Report("worker", "banks", pid=7, host="night-1", jobs=jobs, phase="serving"),
        Report("worker", "banks", pid=8, host="night-1", phase="retiring"),
    ]
    finding = Finding("queue_old", "work", "oldest_age", "1h", "30m", "A due message has not been begun.", "banks")
    alerts.judge(house.broker, [finding], {"queue_old": Rule(timedelta(0), MINUTE)})
    presence = Presence(house.client, house.broker.namespace, lambda: reports)
    presence.start()
    wait_until(lambda: len(present(house.client, house.broker.namespace)) == 2)
    told = house.told("banks")
    presence.stop()
    assert told[0] == "It waits for a bank; queues work"
    assert told[1] == "1 of 2 processes serve it, on night-1; 1 more are retiring."
    assert told[2].startswith("1 jobs run in 8 threads; the longest, job, on night-1, pid 7, for 2m3")
    assert "(over its soft budget)" in told[2]
    assert told[3].startswith("work: 3 wait, the oldest due for ")
    assert "ALERT queue_old of work since" in told[4] and "#queue" in told[4]
    assert told[5].startswith("A job's row is terminal at the latest 8m after its hard budget")


def test_a_lane_that_nobody_serves_says_what_to_start(house: House) -> None:
    assert "NO process serves it: start `fleet work banks`, or look at its log." in house.told("banks")
    assert "Nothing runs in it." in house.told("banks")
