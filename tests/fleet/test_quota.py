"""One budget of places for every host: people are always granted, batch takes what people and their reserve leave."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import pytest
import redis
from dramatiq import Message
from dramatiq.broker import MessageProxy
from dramatiq.middleware import CurrentMessage
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.backoff import NoBackoff
from redis.retry import Retry

from fleet import app as application
from fleet import quota
from fleet.broker import FleetBroker, keys
from fleet.errors import DeclarationInvalid, NotDeclared, RetryLater
from fleet.quota import NoPlace, Quota, Usage
from tests.conftest import ROOT, Environment
from tests.waiting import wait_until

FOUR = Quota("model", places=4, reserve=1, because="the provider's tier answers four at once")
SHORT = timedelta(seconds=0.9)

HOLDER = """
import sys, time
from datetime import timedelta
from types import MappingProxyType
from fleet import quota
from fleet.app import process_broker
from fleet.clock import Clock
from fleet.quota import Quota
people, places, ahead = sys.argv[1] == "people", int(sys.argv[2]), float(sys.argv[3])
quota.LEASE = timedelta(seconds=0.9)
there, now = time.time, Clock.real_now
time.time = lambda: there() + ahead
Clock.real_now = lambda self: now(self) + timedelta(seconds=ahead)
four = Quota("model", places=4, reserve=1, because="the provider's tier answers four at once")
process_broker().quotas = MappingProxyType({"model": four})
held = [quota.place("model", people=people) for _ in range(places)]
for one in held:
    try:
        one.__enter__()
        print("granted", flush=True)
    except quota.NoPlace:
        print("none", flush=True)
sys.stdin.read()
"""

FIRST_PLACES = """
import threading
from datetime import timedelta
from types import MappingProxyType
from fleet import quota
from fleet.app import process_broker
from fleet.quota import Quota
from tests.waiting import wait_until
quota.LEASE = timedelta(seconds=0.9)
four = Quota("model", places=4, reserve=1, because="the provider's tier answers four at once")
process_broker().quotas = MappingProxyType({"model": four})
made, both, held = quota._Holding.__init__, threading.Barrier(2), threading.Barrier(2)
def slowly(self):
    both.wait(10)
    made(self)
quota._Holding.__init__ = slowly
def call():
    with quota.place("model", people=False):
        held.wait(10)
threads = [threading.Thread(target=call) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
wait_until(lambda: "quota" not in [thread.name for thread in threading.enumerate()], 10)
print("over")
"""


@pytest.fixture
def broker(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> FleetBroker:
    broker = application.process_broker()
    monkeypatch.setattr(broker, "quotas", MappingProxyType({"model": FOUR}))
    monkeypatch.setattr(quota, "LEASE", SHORT)
    return broker


Host = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def host(broker: FleetBroker) -> Iterator[Host]:
    """Another host: a process that tries for so many places and keeps what it got."""
    with ExitStack() as running:

        def start(holder: str, places: int, ahead: float = 0.0) -> subprocess.Popen[str]:
            process = running.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", HOLDER, holder, str(places), str(ahead)],
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            running.callback(process.kill)
            return process

        yield start


def answers(process: subprocess.Popen[str], places: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(places)]


def held(broker: FleetBroker) -> tuple[int, int]:
    now = quota.usage(broker, FOUR)
    return now.people, now.batch


def test_batch_leaves_the_reserve_and_says_who_holds_the_rest(broker: FleetBroker) -> None:
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(quota.place("model", people=False))
        with pytest.raises(NoPlace, match="people hold 0 and batch 3 of 4 places, and 1 are kept for people") as found:
            stack.enter_context(quota.place("model", people=False))
        assert isinstance(found.value, RetryLater)
        assert found.value.key not in (None, "model"), "a job that finds no place must not park the model for people"
    assert held(broker) == (0, 0)


def test_people_are_granted_at_once_however_many_there_are_and_hold_batch_off(broker: FleetBroker) -> None:
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(quota.place("model", people=False))
        for _ in range(6):
            stack.enter_context(quota.place("model", people=True))
        assert held(broker) == (6, 3)
    with ExitStack() as stack:
        for people in (True, False, False):
            stack.enter_context(quota.place("model", people=people))
        with pytest.raises(NoPlace):
            stack.enter_context(quota.place("model", people=False))


def test_a_call_that_fails_gives_its_place_back(broker: FleetBroker) -> None:
    with pytest.raises(ZeroDivisionError), quota.place("model", people=False):
        _ = 1 / 0
    assert held(broker) == (0, 0)


def test_two_hosts_share_the_places_and_those_of_a_killed_one_come_back(broker: FleetBroker, host: Host) -> None:
    one, other = host("batch", 2), host("batch", 2)
    got = answers(one, 2) + answers(other, 2)
    assert sorted(got) == ["granted", "granted", "granted", "none"]
    with pytest.raises(NoPlace):
        quota.place("model", people=False).__enter__()
    of_one = got[:2].count("granted")
    os.kill(one.pid, signal.SIGKILL)
    wait_until(lambda: held(broker) == (0, 3 - of_one))
    with quota.place("model", people=False):
        assert held(broker) == (0, 4 - of_one)


def test_a_holder_that_lives_keeps_its_place_for_many_leases(broker: FleetBroker, host: Host) -> None:
    process = host("batch", 3)
    assert answers(process, 3) == ["granted"] * 3
    key, seen = keys.quota(broker.namespace, "model", "batch"), set[float]()

    def renewed() -> bool:
        assert held(broker) == (0, 3)
        ids: Any = broker.client.zrange(key, 0, -1)
        seen.add(max(float(broker.client.zscore(key, str(id, "ascii")) or 0) for id in ids))
        return max(seen) - min(seen) > 3 * SHORT.total_seconds() * 1000

    wait_until(renewed)


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_a_host_whose_clock_is_off_neither_loses_its_places_nor_takes_others(
    broker: FleetBroker, host: Host, ahead: float
) -> None:
    with quota.place("model", people=False), quota.place("model", people=False):
        process = host("batch", 2, ahead)
        assert answers(process, 2) == ["granted", "none"]
        assert held(broker) == (0, 3)
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: held(broker) == (0, 0))


def test_after_redis_s_clock_was_set_back_a_killed_holder_s_place_comes_back_and_who_lives_keeps_theirs(
    broker: FleetBroker,
) -> None:
    key = keys.quota(broker.namespace, "model", "batch")
    with quota.place("model", people=False):
        (lives,) = broker.client.zrange(key, 0, -1)  # type: ignore[misc]
        ends = (time.time() + 3600) * 1000
        broker.client.zadd(key, {"killed": ends, lives: ends})
        wait_until(lambda: held(broker) == (0, 1), 5)
        assert broker.client.zscore(key, "killed") is None


def test_a_process_that_stood_still_is_counted_again_when_it_wakes(broker: FleetBroker, host: Host) -> None:
    process = host("batch", 3)
    answers(process, 3)
    os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: held(broker) == (0, 0))
    with quota.place("model", people=False):
        os.kill(process.pid, signal.SIGCONT)
        wait_until(lambda: held(broker) == (0, 4))
        with pytest.raises(NoPlace):
            quota.place("model", people=False).__enter__()


def renewals_are_over() -> bool:
    """Whether this process holds no place that it would renew."""
    return "quota" not in [thread.name for thread in threading.enumerate()]


def test_a_place_that_is_given_back_between_a_renewal_and_its_list_stays_free(
    broker: FleetBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_until(renewals_are_over)
    monkeypatch.setattr(quota, "LEASE", timedelta(seconds=30))  # it does not lapse meanwhile
    monkeypatch.setattr(quota, "_RENEWALS_A_LEASE", 300)
    call, verbs, job = quota._call, list[str](), ExitStack()

    def between(broker: FleetBroker, some: Quota, verb: str, *more: str) -> tuple[int, int, int]:
        if verb == "keep":
            job.close()
        verbs.append(verb)
        return call(broker, some, verb, *more)

    monkeypatch.setattr(quota, "_call", between)
    job.enter_context(quota.place("model", people=False))
    wait_until(renewals_are_over)
    assert verbs[:3] == ["take", "free", "keep"]
    assert held(broker) == (0, 0)


@pytest.mark.parametrize("breaks", ["start", "keep"])
def test_whatever_a_renewal_meets_the_next_one_is_made(
    broker: FleetBroker, monkeypatch: pytest.MonkeyPatch, breaks: str
) -> None:
    wait_until(renewals_are_over)
    call, start, met = quota._call, threading.Thread.start, threading.Event()

    def once(part: str) -> None:
        if part == breaks and not met.is_set():
            met.set()
            raise RuntimeError("a fault that nobody thought of")

    def started(thread: threading.Thread) -> None:
        once("start")
        start(thread)

    def called(broker: FleetBroker, some: Quota, verb: str, *more: str) -> tuple[int, int, int]:
        once(verb)
        return call(broker, some, verb, *more)

    monkeypatch.setattr(threading.Thread, "start", started)
    monkeypatch.setattr(quota, "_call", called)
    with suppress(RuntimeError), quota.place("model", people=False):
        wait_until(met.is_set)
    with quota.place("model", people=False):
        past = time.monotonic() + 2 * SHORT.total_seconds()
        wait_until(lambda: held(broker) == (0, 1) and time.monotonic() > past)
    assert met.is_set()


def test_of_two_threads_that_take_their_process_s_first_places_at_once_none_renews_for_ever(
    broker: FleetBroker,
) -> None:
    child = subprocess.run(
        [sys.executable, "-c", FIRST_PLACES],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    assert child.stdout.split() == ["over"]
    assert held(broker) == (0, 0)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_renews_its_own_places_and_none_of_its_parents(
    broker: FleetBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, renewed = quota._call, list[str]()

    def seen(broker: FleetBroker, some: Quota, verb: str, *more: str) -> tuple[int, int, int]:
        renewed.extend(more if verb == "keep" else ())
        return call(broker, some, verb, *more)

    with quota.place("model", people=True):
        monkeypatch.setattr(quota, "_call", seen)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with quota.place("model", people=False):
                    wait_until(lambda: len(renewed) > 3)
                code = 0 if "people" not in renewed[-4:] else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert held(broker)[0] == 1


def test_while_redis_is_away_people_call_uncounted_and_batch_gets_no_place(
    broker: FleetBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = redis.Redis(port=1, retry=Retry(NoBackoff(), 0))  # as the fleet's clients: none waits for a second try
    monkeypatch.setitem(broker.__dict__, "client", nobody)
    with quota.place("model", people=True):
        pass
    with pytest.raises(NoPlace):
        quota.place("model", people=False).__enter__()


def test_no_key_of_a_quota_stands_for_ever(broker: FleetBroker) -> None:
    with quota.place("model", people=True), quota.place("model", people=False):
        for holder in ("people", "batch"):
            assert broker.client.pttl(keys.quota(broker.namespace, "model", holder)) > 0


def test_threads_at_once_never_get_more_than_batch_may_have(broker: FleetBroker) -> None:
    together, got = threading.Barrier(12), list[bool]()
    release = threading.Event()

    def call() -> None:
        together.wait()
        try:
            with quota.place("model", people=False):
                got.append(True)
                release.wait(10)
        except NoPlace:
            got.append(False)

    threads = [threading.Thread(target=call) for _ in range(12)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(got) == 12)
    release.set()
    for thread in threads:
        thread.join()
    assert sum(got) == 3


def test_who_is_people_is_said_by_the_queue_that_a_job_came_from(broker: FleetBroker) -> None:
    application.load(ROOT)
    hook, found = CurrentMessage(), {}
    for queue in ("agent_realtime", "uploads", "transaction_postprocess", "agent_batch"):
        message = MessageProxy(Message(queue, "actor", (), {}, {}))
        hook.before_process_message(broker, message)
        found[queue] = quota.for_people()
        hook.after_process_message(broker, message)
    assert found == {"agent_realtime": True, "uploads": True, "transaction_postprocess": False, "agent_batch": False}
    assert quota.for_people(), "outside of a job somebody called"


Step = tuple[str, int]
STEPS = st.lists(st.tuples(st.sampled_from(["people", "batch", "batch", "leave"]), st.integers(0, 20)), max_size=60)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, places=st.integers(1, 8), data=st.data())
def test_the_places_are_never_overdrawn_but_by_people_beyond_their_reserve(
    broker: FleetBroker, monkeypatch: pytest.MonkeyPatch, steps: list[Step], places: int, data: st.DataObject
) -> None:
    monkeypatch.setattr(quota, "LEASE", timedelta(minutes=10))  # nothing lapses, however slow the machine is
    monkeypatch.setattr(quota, "_holding", quota._Holding())  # whose thread sleeps on, while other tests have theirs
    some = Quota(
        f"q{uuid.uuid4().hex[:8]}", places, data.draw(st.integers(0, places - 1)), because="drawn for this example"
    )
    broker.quotas = MappingProxyType({some.name: some})
    inside: list[tuple[str, ExitStack]] = []
    for kind, which in steps:
        if kind == "leave":
            if inside:
                inside.pop(which % len(inside))[1].close()
        else:
            before = sum(1 for _ in inside)
            stack = ExitStack()
            try:
                stack.enter_context(quota.place(some.name, people=kind == "people"))
            except NoPlace:
                assert kind == "batch"
                assert before >= places - some.reserve, "batch was turned away though there was room"
            else:
                assert kind == "people" or before < places - some.reserve, "batch took of the reserve"
                inside.append((kind, stack))
        people = sum(kind == "people" for kind, _ in inside)
        batch = len(inside) - people
        assert quota.usage(broker, some) == Usage(people, batch)
        assert batch <= places - some.reserve
        assert people + batch <= max(places, people + places - some.reserve)
    for _, stack in inside:
        stack.close()


def test_a_quota_that_nobody_declares_is_named_with_those_that_are(broker: FleetBroker) -> None:
    with pytest.raises(NotDeclared, match=r"no quota named 'modle'\. Did you mean 'model'"):
        quota.place("modle", people=True).__enter__()


@pytest.mark.parametrize("given_", [{"places": 0}, {"reserve": 4}, {"reserve": -1}, {"because": "4 places"}])
def test_a_quota_that_cannot_stand_is_refused(given_: dict[str, object]) -> None:
    whole = {"name": "model", "places": 4, "reserve": 1, "because": "the provider's tier answers four"}
    with pytest.raises(DeclarationInvalid):
        Quota(**{**whole, **given_})  # type: ignore[arg-type]


def test_a_place_that_is_collected_as_garbage_under_the_lock_hangs_nobody() -> None:
    class Left:
        def __init__(self) -> None:
            self.cycle = self

        def __del__(self) -> None:
            quota._holding.drop("left")

    def collects() -> None:
        with quota._holding._lock:
            Left()
            gc.collect()

    thread = threading.Thread(target=collects, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
