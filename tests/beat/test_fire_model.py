"""Elections, pauses, clocks, edits and scripts that arrive late, twice or never, in random order, against a model.

A replica prepares its scripts at one moment; each may reach Redis at any later one, any number of times: as when the
replica was stopped between its check and its fire, or a reply was lost. It believes in its term whatever Redis says,
and its clock may be wrong. At most one message a slot, at least one end a slot (exactly one, in the ledger), and
nothing out of the term that it was made in: with the mark in place a script of an ended term can double no slot, so
it is the last of the three that the token and the epoch are there for.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import hypothesis.strategies as st
import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from structlog.testing import capture_logs

from beat import fire
from beat.catch_up import Instant
from beat.fire import Call, Firer
from beat.leader import Leader
from beat.now import Now
from beat.stored import night_at
from fleet import All, Entry, by_hand, ledger, wire
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.slots import slots_between
from tests.beat.beaten import HOUR, MINUTE, SECOND, START, StandingNight

ACQUIRE = (Path(fire.__file__).parent / "acquire.lua").read_text()
FIRE = (Path(fire.__file__).parent / "fire.lua").read_text()
# Half a second off every slot, so that the milliseconds which a standing night runs on decide nothing.
BEGIN = START + SECOND / 2
TICK = timedelta(microseconds=1)
BASE = Entry("e", every=10 * SECOND, expires=40 * SECOND, because="a test needs slots", actor="job")
SCHEDULES: tuple[tuple[Entry, ...], ...] = (
    (BASE,),
    (replace(BASE, every=None, cron="* * * * *", expires=2 * MINUTE, catch_up=All(2)),),
    (replace(BASE, every=7 * SECOND, overlap="skip", jitter=5 * SECOND),),
    (replace(BASE, name="f", catch_up="none"),),
)
EXAMPLES = 150  # so many find each of the MUTANTS
REPLICAS, LEADER = st.integers(0, 2), 3
RARELY = st.integers(0, 3).map(lambda drawn: drawn == 0)


class Replica(Firer):
    """Prepares scripts, and leaves their delivery to the machine."""

    def __init__(self, broker: FleetBroker, schedule: tuple[Entry, ...]) -> None:
        token = str(uuid.uuid4())
        self.term = SimpleNamespace(token=token, epoch=0, leads=lambda: True)
        super().__init__(broker, cast(Leader, self.term), schedule, Now())

    def prepared(self, skew: timedelta, *, fresh: bool) -> list[Call]:
        if fresh or not self._stored.generation:
            self._stored.look()
            self._stored.load()
        at = self._stored.instant()
        at = Instant(at.now + skew, at.due + skew, at.rate)
        return list(self._calls(self._stored.take_due(at.due), at, (self._stored.generation, self.term.epoch)))


class Beat(RuleBasedStateMachine):
    """The model: the revisions with the instant each began, and every message that was ever in the queue."""

    client: redis.Redis
    text = FIRE

    def __init__(self) -> None:
        super().__init__()
        self.namespace = f"test-model-{uuid.uuid4().hex[:8]}"
        self.broker = FleetBroker(client=self.client, namespace=self.namespace, middleware=[])
        actor: Any = SimpleNamespace(queue_name="work")
        self.broker.actors = {"job": actor}
        self.acquire = self.client.register_script(ACQUIRE)
        self.fire = self.client.register_script(self.text)
        self.night = StandingNight()
        self.now = BEGIN
        self.began: dict[str, list[tuple[datetime, Entry | None]]] = {}
        self.sent: Counter[str] = Counter()
        self.seen: dict[str, int] = {}
        self.calls: list[Call] = []

    @initialize()
    def start(self) -> None:
        self.night.move_to(self.now)
        self.replicas = [Replica(self.broker, SCHEDULES[0]) for _ in range(3)]
        for replica in self.replicas:
            self._register(replica, 0)
        self.elect(0)

    def _register(self, replica: Replica, number: int) -> None:
        marks = {name.decode(): int(mark) for name, mark in self.client.hgetall(keys.marks(self.namespace)).items()}
        replica.register()
        declared = {entry.name: entry for entry in SCHEDULES[number]}
        for name in {*declared, *self.began}:
            before = self.began.setdefault(name, [])
            if not before or before[-1][1] != declared.get(name):
                since = max([self.now, *([wire.from_ms(marks[name])] if name in marks else [])])
                before.append((max([since, *(at for at, _ in before[-1:])]), declared.get(name)))

    def elect(self, which: int) -> None:
        """Does nothing while another leads; a term that is the replica's own goes on."""
        ns = self.namespace
        epoch, _ = self.acquire(keys=[keys.leader(ns), keys.epoch(ns)], args=[self.replicas[which].term.token, 600_000])
        if epoch:
            self.replicas[which].term.epoch = int(epoch)

    def end_the_term(self) -> None:
        self.client.delete(keys.leader(self.namespace))

    @rule()
    def nobody_leads_any_more(self) -> None:
        """The term expires, or its leader leaves office."""
        self.end_the_term()

    @rule(which=REPLICAS)
    def a_new_term_begins(self, which: int) -> None:
        """Of another replica, or of the same one again."""
        self.end_the_term()
        self.elect(which)

    def leader(self) -> int:
        leads = (self.client.get(keys.leader(self.namespace)) or b"").decode()
        return next((number for number, one in enumerate(self.replicas) if one.term.token == leads), 0)

    @rule(seconds=st.integers(1, 600))
    def time_goes_on(self, seconds: int) -> None:
        self.now += seconds * SECOND
        self.night.move_to(self.now)

    @rule(seconds=st.integers(1, 60))
    def the_clock_is_set_back(self, seconds: int) -> None:
        self.now -= seconds * SECOND
        self.night.move_to(self.now)

    @rule(
        which=st.one_of(REPLICAS, st.just(LEADER)),
        skew=st.sampled_from([0, 0, 0, -5, 5, 90]),
        seconds=st.integers(0, 60),
        fresh=st.booleans(),
    )
    def prepare(self, which: int, skew: int, seconds: int, fresh: bool) -> None:
        """By what is there now, or by what the replica read before."""
        self.time_goes_on(seconds)
        replica = self.replicas[self.leader() if which == LEADER else which]
        self.calls += replica.prepared(skew * SECOND, fresh=fresh)

    @rule(seconds=st.integers(1, 60), fresh=st.booleans())
    def the_leader_makes_a_pass(self, seconds: int, fresh: bool) -> None:
        before = len(self.calls)
        self.prepare(LEADER, 0, seconds, fresh)
        for back in range(len(self.calls) - before, 0, -1):
            self.deliver(back)

    @precondition(lambda self: self.calls)
    @rule(back=st.integers(1, 4))
    def deliver(self, back: int) -> None:
        """One of the last scripts that were prepared; it may be delivered again."""
        call = self.calls[-min(back, len(self.calls))]
        self.night.move_to(self.now)
        # The night that the server's time is turned into is that of the delivery, whenever the script was prepared.
        before, behind = call.args[:5], call.args[8:]
        self.fire(keys=call.keys, args=[*before, *night_at(clock.real_now()), *behind])
        self.look_at_what_was_done()

    @rule(which=REPLICAS, number=st.integers(0, len(SCHEDULES) - 1), really=RARELY)
    def a_new_release_starts(self, which: int, number: int, really: bool) -> None:
        if not really:
            return
        self.night.move_to(self.now)
        self.replicas[which] = Replica(self.broker, SCHEDULES[number])
        self._register(self.replicas[which], number)

    @rule(paused=st.booleans(), really=RARELY)
    def pause_or_resume(self, paused: bool, really: bool) -> None:
        if not really:
            return
        (by_hand.pause if paused else by_hand.resume)(self.broker, "e", by="ann", because="it is closed")

    @rule()
    def a_worker_runs_all_that_waits(self) -> None:
        queue, bodies = keys.queue(self.namespace, "work"), keys.bodies(self.namespace, "work")
        ids = self.client.lrange(queue, 0, -1)
        assert {*ids} == {*self.client.hkeys(bodies)}
        self.sent.update(id.decode() for id in ids)
        self.client.delete(queue, bodies)
        doubled = [id for id, times in self.sent.items() if times > 1]
        assert not doubled, f"slots with two messages: {doubled}"

    def look_at_what_was_done(self) -> None:
        """No slot has two verdicts, and what was just written is the leader's, in its term, of a slot that has come."""
        leads = (self.client.get(keys.leader(self.namespace)) or b"").decode()
        epoch = int(self.client.get(keys.epoch(self.namespace)) or 0)
        for name in self.began:
            lines = [line for line in ledger.read(self.client, self.namespace, name) if line.judges]
            for line in lines[self.seen.get(name, 0) :]:
                assert (line.token, line.epoch) == (leads, epoch), "sent out of its term"
                assert line.last <= clock.now() + 2 * SECOND, "sent before its time"
            self.seen[name] = len(lines)
            for earlier, later in pairwise(lines):
                assert earlier.last < later.first, "a slot has two verdicts"

    def teardown(self) -> None:
        try:
            if self.began:
                self.the_last_pass_leaves_no_slot_without_an_end()
        finally:
            clock.set_night(None)
            for key in self.client.scan_iter(f"{self.namespace}:*"):
                self.client.delete(key)

    def the_last_pass_leaves_no_slot_without_an_end(self) -> None:
        last = self.replicas[0]
        self.end_the_term()
        self.elect(0)
        ends = max([self.now, *(at for said in self.began.values() for at, _ in said)]) + HOUR
        for seconds in (0, 10):  # twice: jitter may hold up what lies behind it
            self.night.move_to(ends + seconds * SECOND)
            last.pass_over()
        self.a_worker_runs_all_that_waits()
        for name, said in self.began.items():
            lines = [line for line in ledger.read(self.client, self.namespace, name) if line.judges]
            should = [slot for slot in expected(said, ends + HOUR) if slot <= lines[-1].last] if lines else []
            found = [slot for line in lines for slot in expanded(line, said)]
            assert found == should, f"{name}: slots without an end, or with two"
            living = said[-1][1]
            assert living is None or (lines and lines[-1].last >= ends - living.jitter - MINUTE), "it went silent"
            fired = {f"{name}@{wire.to_ms(line.last)}" for line in lines if line.verdict == "fired"}
            assert fired == {id for id in self.sent if id.startswith(f"{name}@")}


def expected(said: list[tuple[datetime, Entry | None]], until: datetime) -> Iterator[datetime]:
    """Every slot of an entry's revisions, each after the instant it began up to the one at which the next did."""
    ends = [at for at, _ in said[1:]] + [until]
    for (began, entry), end in zip(said, ends, strict=True):
        if entry is not None and began < end:
            yield from slots_between(entry, began, end)


def expanded(line: ledger.LedgerLine, said: list[tuple[datetime, Entry | None]]) -> Iterator[datetime]:
    entry = said[line.revision - 1][1]
    assert entry is not None
    slots = list(slots_between(entry, line.first - TICK, line.last))
    assert len(slots) == line.count
    yield from slots


def play(client: redis.Redis, text: str, examples: int, *, shrink: bool = True) -> None:
    class Played(Beat):
        pass

    Played.client, Played.text = client, text
    phases = [Phase.generate, *([Phase.shrink] if shrink else [])]
    with capture_logs():
        run_state_machine_as_test(
            Played,
            settings=settings(
                max_examples=examples,
                stateful_step_count=40,
                deadline=None,
                phases=phases,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("examples", [EXAMPLES, pytest.param(300, marks=pytest.mark.soak)])
def test_at_most_one_message_a_slot_and_at_least_one_end_a_slot(redis_client: redis.Redis, examples: int) -> None:
    play(redis_client, FIRE, examples)


def without(*taken: str) -> Callable[[], str]:
    def text() -> str:
        found = FIRE
        for part in taken:
            assert part in found, f"fire.lua no longer holds what this test takes out: {part}"
            found = found.replace(part, "", 1)
        return found

    return text


MUTANTS = {
    "the token": without('redis.call("GET", KEYS[1]) ~= ARGV[1] or '),
    "the epoch": without(' or redis.call("GET", KEYS[2]) ~= ARGV[2]'),
    "the mark": without('if redis.call("HGET", KEYS[4], ARGV[4]) ~= ARGV[5] then\n    return {"moved"}\nend\n'),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("taken", MUTANTS)
def test_a_script_without_one_of_its_checks_is_found_out(redis_client: redis.Redis, taken: str) -> None:
    with pytest.raises((AssertionError, ExceptionGroup)) as found:
        play(redis_client, MUTANTS[taken](), EXAMPLES, shrink=False)
    print(f"without {taken}: {found.value}")
