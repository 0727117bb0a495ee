"""Whatever lies in a queue, behind all that reads messages here each one ends soon, and so does its slot.

As `test_queue_bytes`, with the house's own middleware in its order, a lane, payload keys, and a database in which slots
are claimed.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import count, cycle, product
from typing import Any

import dramatiq
import pytest
from cryptography.fernet import Fernet
from dramatiq import Broker, Message, MessageProxy, Middleware
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from fleet import queue
from fleet.broker import keys
from fleet.payloads import SEALED, PayloadEncoder
from fleet.storage.tables import LIVE_STATES
from fleet.workers import other_release
from middleware.slot_claim import SlotClaim
from tests.fuzz.changed import JSON, changed_bytes
from tests.middleware.conftest import NIGHTLY, QUEUE, House
from tests.middleware.slot_rows import rows, said
from tests.waiting import wait_until

KEY = Fernet.generate_key().decode()
MOST_DELIVERIES = 100
"""Three attempts and two runs whose hooks broke; what waits for its slot, or is left to another release, comes back a
few times a second, for a few seconds."""

FIELDS = ("queue_name", "actor_name", "args", "kwargs", "options", "message_id", "message_timestamp")
COUNTERS = ("retries", "hook_failures", "parkings", "outages", "left")
OF_FAILURES = ("throws", "min_backoff", "on_failure", "on_retry_exhausted")
OPTIONS = (
    *("redis_message_id", "traceback", "entry", "slot", "nonce", "expires_at", "origin", "asked_at", "eta", "due_at"),
    *("time_limit", "max_age", "lost", "delivery", "chain", "generation", "requeue_timestamp", "_sentry_headers"),
    *("comes_back_in", "expired", "discarded", "waits", "on_success", "pipe_target", "pipe_ignore", SEALED),
    *(*COUNTERS, *OF_FAILURES),
)
"""All that somebody here reads, but `max_retries` and `max_backoff`: who asks for endless tries may have them."""
LONGEST = 10**4_300 - 1
"""A digit more, and Python neither reads nor writes it."""
ODD_NUMBERS = (True, 0, -1, -(10**12), LONGEST, -LONGEST, math.nan, -math.inf)
ODD = (None, *ODD_NUMBERS, "", "x", "\x00", "\ud800", [], {}, {"a": 1})
KINDS = ("takes_all", "takes_one", "sends", "fails", "breaks")
"""Actors; the last is the first, with an option over which a hook breaks."""
OF_KINDS = dict.fromkeys(OF_FAILURES, ("fails",)) | dict.fromkeys(COUNTERS, ("fails", "breaks"))
OF_KINDS |= dict.fromkeys(("message_id", "slot", "nonce", "expires_at"), ("takes_all", "fails"))


def body(kind: str, number: int, changes: dict[str, Any]) -> bytes:
    """A sound message of a slot of its own, with some of its fields and options changed."""
    sound: dict[str, Any] = {
        "queue_name": QUEUE,
        "actor_name": "takes_all" if kind == "breaks" else kind,
        "args": [1],
        "kwargs": {},
        "options": {"entry": NIGHTLY.name, "slot": number, "nonce": "n", "expires_at": 2**45},
        "message_id": f"m-{number}",
        "message_timestamp": 2**40,
    }
    if kind == "breaks":
        sound["options"]["on_success"] = "nobody"
    sound["options"] |= {name: value for name, value in changes.items() if name not in FIELDS}
    return json.dumps(sound | {name: value for name, value in changes.items() if name in FIELDS}).encode()


def each_by_each() -> Iterator[bytes]:
    """Every field and option by every odd value, in a message of the kinds that it matters to, or of one of all."""
    numbers, turns = count(1), cycle(KINDS)
    for name, odd in product((*FIELDS, *OPTIONS), ODD):
        for kind in OF_KINDS.get(name) or [next(turns)]:
            yield body(kind, next(numbers), {name: odd})


def sealed(content: Any) -> bytes:
    """A message whose token holds this instead of id, actor, arguments and traceback."""
    token = Fernet(KEY).encrypt(json.dumps(content).encode()).decode()
    return body("takes_all", 1, {SEALED: token, "message_id": "m"})


SEALED_BODIES = (
    sealed(["m", "takes_all", [1], {}, None]),
    sealed(["m", "takes_all", [1], {}, {"not": "a traceback"}]),
    sealed(["m", "takes_all", 5, {}, None]),
    sealed(["m", "takes_all", [1], 7, None]),
    sealed(["another", "takes_all", [1], {}, None]),
    sealed([{}, [], {}, [], 0]),
    sealed(7),
    sealed({}),
)
CHANGES = st.dictionaries(st.sampled_from((*FIELDS, *OPTIONS)), st.sampled_from(ODD) | JSON, min_size=1, max_size=3)
BODIES = st.lists(
    st.builds(body, st.sampled_from(KINDS), st.integers(1, 10**6), CHANGES)
    | changed_bytes((*SEALED_BODIES, *(body(kind, 2, {}) for kind in KINDS)))
    | st.sampled_from(SEALED_BODIES),
    min_size=40,
    max_size=120,
)


class Deliveries(Middleware):
    """How often each message came to a thread, by its id in Redis."""

    def __init__(self) -> None:
        self.of = Counter[str]()

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        self.of[message.fetched.id] += 1


class Door:
    """The house at work, and what is put into its queue."""

    def __init__(self, house: House) -> None:
        self._house, self._broker = house, house.broker
        self._deliveries, self._put, self._sent, self._heard = Deliveries(), 0, 0, list[int]()
        self._broker.middleware.insert(0, self._deliveries)
        work = queue(QUEUE)

        def fails(*_: Any, **__: Any) -> None:
            raise ValueError("not tonight")

        def sends(*_: Any, **__: Any) -> None:
            leaf.send()
            self._sent += 1

        leaf = work.actor(name="takes_all")(lambda *_, **__: None)
        for name, function in {"takes_one": lambda one: None, "fails": fails, "sends": sends}.items():
            work.actor(name=name)(function)
        self._sound = work.actor(name="sound")(lambda number: self._heard.append(number))
        house.work()
        assert house._worker is not None
        self._worker = house._worker

    def take(self, bodies: list[bytes]) -> None:
        """Put these into the queue, a sound one behind every tenth, and see that all of them end as they should."""
        client, ns, sound = self._broker.client, self._broker.namespace, len(self._heard)
        with capture_logs() as logs:
            for number, one in enumerate(bodies):
                self._put += 1
                with client.pipeline() as pipe:
                    pipe.hset(keys.bodies(ns, QUEUE), f"{self._put}", one)
                    pipe.rpush(keys.queue(ns, QUEUE), f"{self._put}")
                    pipe.execute()
                if number % 10 == 0:
                    self._sound.send(number)
            self._until_idle()
        self._put += -(-len(bodies) // 10)
        assert len(self._heard) - sound == -(-len(bodies) // 10)
        assert not said(logs, "slots_unanswered")
        self._require_ended()

    def _until_idle(self) -> None:
        try:
            self._house.until_idle(100)
        except AssertionError:
            left: Any = self._broker.client.hvals(keys.bodies(self._broker.namespace, QUEUE))
            raise AssertionError(f"{len(left)} did not end, such as {[one[:2_000] for one in left[:3]]}") from None

    def _require_ended(self) -> None:
        ends = self._worker.ends
        # More, where a deadline ended the job between its sending and its counting.
        wait_until(lambda: ends["done"] + ends["drop"] + ends["dead"] >= self._put + self._sent, 10)
        often = {id: times for id, times in self._deliveries.of.items() if times > MOST_DELIVERIES}
        assert not often and not ends["stale"]
        assert all(thread.is_alive() for thread in (*self._worker.workers, self._worker.pump))
        (claims,) = [one for one in self._broker.middleware if isinstance(one, SlotClaim)]
        assert not claims._made or not claims._made._kept, "an end is not written"
        assert [row.message_id for row in rows() if row.state in LIVE_STATES] == []


@pytest.fixture
def door(recorded: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    """What no release can run is left for two seconds instead of half an hour."""
    monkeypatch.setattr(other_release, "LEFT_FOR", timedelta(seconds=2))
    before = dramatiq.get_encoder()
    dramatiq.set_encoder(PayloadEncoder(lambda: [KEY]))
    yield Door(recorded)
    recorded.stop()
    dramatiq.set_encoder(before)


def test_each_field_by_each_odd_value_ends_soon_and_the_sound_ones_run(door: Door) -> None:
    door.take([*each_by_each(), *SEALED_BODIES])


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@example(bodies=[body("takes_all", 1, {"message_id": {}, "options": {"entry": NIGHTLY.name, "slot": 1}})])
@example(bodies=[body("takes_all", 2, {"message_id": {}, "expires_at": 1}), body("takes_all", 3, {"expires_at": 1})])
@example(bodies=[body("breaks", 4, {"hook_failures": -(10**12)})])
@given(bodies=BODIES)
def test_whatever_lies_there_ends_soon_and_the_sound_ones_run(door: Door, bodies: list[bytes]) -> None:
    door.take(bodies)


def test_the_samples_are_sound(door: Door) -> None:
    """Else what is changed in them would be refused for another reason."""
    for number, kind in enumerate(KINDS, start=1):
        assert Message.decode(body(kind, number, {})).options["slot"] == number
    opened = Message.decode(SEALED_BODIES[0])
    assert opened.args == (1,) and SEALED not in opened.options
