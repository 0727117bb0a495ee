"""Sends, turns, ends, repeats, reaping, crashes and delays in random order, against a model of where each id is."""

from __future__ import annotations

import uuid
from typing import Any

import hypothesis.strategies as st
import redis
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from fleet.broker import keys
from fleet.broker.reaper import reap
from fleet.broker.scripts import Scripts
from tests.broker.station import QUEUE, places
from tests.broker.turns import End, Turns, fetched

WORKERS = ("a", "b", "c")
HOUR = 3_600_000
KINDS = st.sampled_from(["done", "drop", "back", "retry at once", "retry later", "dead"])
WORKER = st.sampled_from(WORKERS)


class Broker(RuleBasedStateMachine):
    """The model: the waiting list in its order, what each worker id holds in its order, and four sets."""

    client: redis.Redis
    scripts: Scripts

    def __init__(self) -> None:
        super().__init__()
        self.namespace = f"test-model-{uuid.uuid4().hex[:8]}"
        self.waiting: list[bytes] = []
        self.due_now: list[bytes] = []
        self.due_later: set[bytes] = set()
        self.dead: set[bytes] = set()
        self.gone: set[bytes] = set()
        self.turns = {name: self._new(name) for name in WORKERS}
        self.held: dict[str, list[bytes]] = {turns.worker: [] for turns in self.turns.values()}
        self.answers: dict[str, Any] = {}
        self.zombies: list[tuple[Turns, list[bytes]]] = []
        self.last_call: tuple[list[str], list[Any]] | None = None

    def _new(self, name: str) -> Turns:
        return Turns(self.client, self.scripts, self.namespace, f"{name}-{uuid.uuid4().hex[:6]}")

    def teardown(self) -> None:
        for key in self.client.keys(f"{self.namespace}:*"):
            self.client.delete(key)

    @rule(count=st.integers(1, 3), delay=st.sampled_from(["", 0, HOUR]))
    def send(self, count: int, delay: int | str) -> None:
        ids = [uuid.uuid4().hex.encode() for _ in range(count)]
        ns = self.namespace
        asked = [keys.sender(ns, "test"), keys.awaited(ns)]
        asked += [keys.queue(ns, QUEUE), keys.bodies(ns, QUEUE), keys.due(ns, QUEUE)]
        args: list[Any] = [keys.wake(ns), delay, uuid.uuid4().hex, 60, 1, 60, QUEUE, count]
        for id in ids:
            args += (id, b"body of " + id)
        self.last_call = (asked, args)
        assert self.scripts.enqueue(keys=asked, args=args) == count
        if delay == "":
            self.waiting += ids
        elif delay == 0:
            self.due_now += ids
        else:
            self.due_later.update(ids)

    @precondition(lambda self: self.last_call is not None)
    @rule()
    def repeat_the_last_send(self) -> None:
        assert self.last_call is not None
        asked, args = self.last_call
        assert self.scripts.enqueue(keys=asked, args=args) == 0

    @rule(name=WORKER, wanted=st.integers(0, 4), ends=st.lists(st.tuples(st.integers(0, 5), KINDS), max_size=3))
    def turn(self, name: str, wanted: int, ends: list[tuple[int, str]]) -> None:
        turns = self.turns[name]
        held = self.held[turns.worker]
        written: list[End] = []
        for place, kind in ends:
            if held:
                written.append(self._end(held.pop(place % len(held)), kind))
        answer = turns.take(wanted, written)
        self.answers[name] = answer
        assert answer[0] == b"1" * len(written)
        if wanted:
            self._promoted()
        self._took(held, answer, wanted)

    def _promoted(self) -> None:
        """What was due lies behind what waited, in an order that only its milliseconds know."""
        order = self.client.lrange(keys.queue(self.namespace, QUEUE), 0, -1)
        promoted = set(self.due_now)
        known = [id for id in order if id in promoted]
        taken = [id for id in self.due_now if id not in known]
        self.waiting += [*taken, *known]
        self.due_now = []

    def _took(self, held: list[bytes], answer: Any, wanted: int) -> None:
        got = fetched(answer)
        assert len(got) == min(wanted, len(self.waiting))
        ids = [id for id, _ in got]
        assert set(ids) <= set(self.waiting)
        for id, body in got:
            self.waiting.remove(id)
            assert body.endswith(id)
        held += ids

    def _end(self, id: bytes, kind: str) -> End:
        if kind == "back":
            self.waiting.insert(0, id)
            return "back", id, b"", b""
        if kind == "dead":
            self.dead.add(id)
            return "dead", id, b"", b"{}"
        if kind.startswith("retry"):
            later = kind == "retry later"
            (self.due_later.add if later else self.due_now.append)(id)
            return "retry", id, b"again " + id, str(HOUR if later else 0).encode()
        self.gone.add(id)
        return kind, id, b"", b""

    @precondition(lambda self: self.answers)
    @rule(name=WORKER)
    def repeat_the_last_turn(self, name: str) -> None:
        if name in self.answers:
            again = self.turns[name].repeat()
            first = self.answers[name]
            assert again[0] == first[0]
            still = set(self.held[self.turns[name].worker])
            assert [id for id, _ in fetched(again)] == [id for id, _ in fetched(first) if id in still]

    @rule(name=WORKER)
    def reap(self, name: str) -> None:
        """The worker is dead, or only stopped: its next turn says which."""
        turns = self.turns[name]
        held = self.held.pop(turns.worker)
        assert reap(self.client, self.scripts, self.namespace, turns.worker, [QUEUE]).returned == len(held)
        self.waiting = held + self.waiting
        self.zombies.append((turns, held))
        self.turns[name] = self._new(name)
        self.held[self.turns[name].worker] = []
        self.answers.pop(name, None)

    @precondition(lambda self: self.zombies)
    @rule(kind=st.sampled_from(["done", "back", "retry", "dead"]), repeat=st.booleans())
    def come_back_too_late(self, kind: str, repeat: bool) -> None:
        turns, held = self.zombies[-1]
        if repeat and turns._last is not None:
            assert turns.repeat() == b"fenced"
        ends: list[End] = [(kind, id, b"", b"0") for id in held]
        assert turns.take(2, ends) == b"fenced"

    @invariant()
    def every_id_is_in_exactly_one_place(self) -> None:
        expected = {one: ["waiting"] for one in self.waiting}
        expected |= {one: ["delayed"] for one in (*self.due_now, *self.due_later)}
        expected |= {one: ["dead"] for one in self.dead}
        expected |= {one: [worker] for worker, ids in self.held.items() for one in ids}
        assert places(self.client, self.namespace) == expected
        bodies = set(self.client.hkeys(keys.bodies(self.namespace, QUEUE)))
        assert bodies == set(expected) - self.dead
        assert set(self.client.hkeys(keys.dead_bodies(self.namespace, QUEUE))) == self.dead

    @invariant()
    def the_list_is_in_its_order(self) -> None:
        assert self.client.lrange(keys.queue(self.namespace, QUEUE), 0, -1) == self.waiting


def test_every_id_is_in_exactly_one_place_whatever_happens_in_whatever_order(redis_client: redis.Redis) -> None:
    bound = type("Bound", (Broker,), {"client": redis_client, "scripts": Scripts(redis_client)})
    run_state_machine_as_test(
        bound,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
