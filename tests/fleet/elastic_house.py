"""An elastic entry with a backlog of a test's own, and a worker that drains it."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta

from dramatiq import Message

from fleet import Budget, Elastic, Entry, Lane, Retry, elastic, queue, wire
from fleet.actor import current_message
from fleet.allowance import Reason
from fleet.broker import FleetBroker, keys
from fleet.clock import Night, clock
from fleet.workers.worker import FleetWorker
from tests.waiting import wait_until

QUEUE = "work"
NIGHT = datetime(2026, 11, 30, tzinfo=UTC)
ENTRY = Entry(
    "sort",
    cron="0 4 * * *",
    expires=timedelta(hours=2),
    because="after the audit, before the invoices",
    elastic=Elastic(
        window=(time(0, 30), time(6, 15)),
        day=time(6, 30),
        slot=time(4, 0),
        backlog="app:rows",
        chunk=5,
        cap=4,
        because="banks have closed their day, and offices open at half past six",
    ),
)
LANE = Lane(
    "lane",
    queues=(QUEUE,),
    waits_for="a test",
    processes=1,
    threads=4,
    budget=Budget(timedelta(seconds=20), timedelta(seconds=40), because="no job of a test comes near it"),
    retry=Retry(attempts=3, first=timedelta(milliseconds=20), longest=timedelta(milliseconds=40)),
)


def tonight(hour: int, minute: int = 0) -> datetime:
    """The night's instant at a time of day."""
    return NIGHT + timedelta(hours=hour, minutes=minute)


def it_is(hour: int, minute: int = 0, second: int = 0) -> None:
    """Let the night's clock go on, in real seconds, from a time of day."""
    at = tonight(hour, minute) + timedelta(seconds=second)
    clock.set_night(Night(origin=at, anchor=clock.real_now(), rate=1.0))


class ElasticHouse:
    """A backlog of rows that a chunk takes from; `gate` holds chunks in their bodies while it is clear."""

    def __init__(self, broker: FleetBroker, entry: Entry = ENTRY) -> None:
        self.broker, self.entry = broker, entry
        broker.lanes, broker.entries = {QUEUE: LANE}, {entry.name: entry}
        self.backlog, self.chunks = 0, Counter[int]()
        self.begun = Counter[int]()  # messages, by the number of their chain
        self.failures = self.given_back = 0
        self.running = self.most_at_once = 0
        self.gate = threading.Event()
        self.gate.set()
        self._lock = threading.Lock()
        self._worker: FleetWorker | None = None

        @queue(QUEUE).actor
        def sort() -> None:
            message = current_message()
            self.begun[message.options.get(wire.CHAIN, -1) if message else -1] += 1
            elastic.chunk(self.work, give_back=self.give_back)

        self.actor = sort

    def work(self, size: int) -> bool:
        """One chunk."""
        with self._lock:
            self.running += 1
            self.most_at_once = max(self.most_at_once, self.running)
            mine, self.backlog = min(size, self.backlog), max(0, self.backlog - size)
            self.chunks[mine] += 1
            left = self.backlog > 0
        try:
            assert self.gate.wait(20)
            if self.failures:
                self.failures -= 1
                raise ValueError("a bad row")
        finally:
            with self._lock:
                self.running -= 1
        return left

    def give_back(self) -> None:
        """Of a chunk that may not begin."""
        self.given_back += 1

    def lease(self, places: int, reason: Reason = "calm", lasts: timedelta = timedelta(hours=1)) -> None:
        """Allow so many chains, as the balancer would."""
        told = {"places": places, "reason": reason, "until": wire.to_ms(clock.now() + lasts)}
        self.broker.client.set(keys.allowance(self.broker.namespace, self.entry.name), json.dumps(told), px=3_600_000)

    def send_slot(self) -> None:
        """The message of the entry's slot."""
        slot = wire.to_ms(tonight(4))
        message = self.actor.message_with_options(**{wire.ENTRY: self.entry.name, wire.SLOT: slot, wire.NONCE: "n"})
        self.broker.enqueue(message)

    def start(self, threads: int = 6) -> None:
        self._worker = FleetWorker(self.broker, worker_timeout=50, worker_threads=threads)
        self._worker.start()

    def stop(self) -> None:
        self.gate.set()
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def bodies(self) -> list[Message[None]]:
        """The messages that are there."""
        found = self.broker.client.hvals(keys.bodies(self.broker.namespace, QUEUE))
        return [Message.decode(body) for body in found]  # type: ignore[arg-type, union-attr]

    def chains(self) -> list[int]:
        """The numbers of the chains that are there."""
        return sorted(message.options.get(wire.CHAIN, -1) for message in self.bodies())

    def until_idle(self, seconds: float = 15) -> None:
        """Wait until no message is there."""
        wait_until(lambda: not self.bodies(), seconds)


def with_elastic(entry: Entry, **values: object) -> Entry:
    """The entry with other values of its `elastic`."""
    assert entry.elastic is not None
    return replace(entry, elastic=replace(entry.elastic, **values))  # type: ignore[arg-type]
