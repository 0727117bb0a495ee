"""Of any number of replicas one leads, and knows in time when it no longer does."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from beat.leader import Leader
from fleet.broker import keys
from fleet.settings import LEADER_MARGIN
from tests.waiting import wait_until

Replica = Callable[..., Leader]


@pytest.mark.alone
def test_of_two_replicas_one_leads_and_the_key_holds_its_token(
    replica: Replica, redis_client: redis.Redis, namespace: str
) -> None:
    first = replica()
    wait_until(first.leads)
    second = replica()
    ends = time.monotonic() + 1
    while time.monotonic() < ends:
        assert first.leads() and not second.leads()
        assert redis_client.get(keys.leader(namespace)) == first.token.encode()
        time.sleep(0.05)


def test_the_lock_expires_by_itself_within_the_term(
    replica: Replica, redis_client: redis.Redis, namespace: str
) -> None:
    leader = replica(ttl=timedelta(seconds=2))
    wait_until(leader.leads)
    assert 0 < redis_client.pttl(keys.leader(namespace)) <= 2000


@pytest.mark.alone
def test_renewal_carries_a_leader_past_its_first_term(replica: Replica, namespace: str) -> None:
    leader = replica(ttl=timedelta(seconds=1), renewal=timedelta(milliseconds=100))
    wait_until(leader.leads)
    ends = time.monotonic() + 1.5
    while time.monotonic() < ends:
        assert leader.leads()
        time.sleep(0.02)
    assert leader.epoch == 1


def test_a_foreign_token_is_neither_renewed_nor_released(
    replica: Replica, redis_client: redis.Redis, namespace: str
) -> None:
    leader = replica()
    wait_until(leader.leads)
    redis_client.set(keys.leader(namespace), "somebody-else", px=30_000)
    wait_until(lambda: not leader.leads())
    leader.stop()
    assert redis_client.get(keys.leader(namespace)) == b"somebody-else"
    assert redis_client.pttl(keys.leader(namespace)) > 20_000, "renewed to the term of a replica it does not belong to"


def test_a_leader_that_was_overthrown_unnoticed_does_not_release_its_successor(
    replica: Replica, redis_client: redis.Redis, namespace: str
) -> None:
    leader = replica(ttl=timedelta(seconds=30), renewal=timedelta(seconds=20))
    wait_until(leader.leads)
    redis_client.set(keys.leader(namespace), "successor")
    assert leader.leads(), "it cannot know yet"
    leader.stop()
    assert redis_client.get(keys.leader(namespace)) == b"successor"


class Wire:
    """A TCP hop in front of Redis that goes silent, slow, or loses one reply, as a broken network does."""

    def __init__(self, url: str) -> None:
        target = redis.Redis.from_url(url).connection_pool.connection_kwargs
        self._target = (target["host"], target["port"])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listener]
        self.silent = threading.Event()  # neither side hears the other any more
        self.reply_delay = 0.0
        self.lose_next_reply = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()
        self.client = self.answering_within(5)

    def answering_within(self, seconds: float) -> redis.Redis:
        port = self._listener.getsockname()[1]
        return redis.Redis(port=port, socket_timeout=seconds, retry=Retry(NoBackoff(), 0), protocol=2)

    def close(self) -> None:
        for open_socket in self._sockets:
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)  # wakes whoever waits on it; close alone does not
            open_socket.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            self._sockets += [near, far]
            threading.Thread(target=self._pump, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_reply: bool) -> None:
        try:
            while data := source.recv(65_536):
                if is_reply and self.lose_next_reply.is_set():
                    self.lose_next_reply.clear()
                    break
                if is_reply:
                    time.sleep(self.reply_delay)
                if not self.silent.is_set():
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


@pytest.fixture
def wire(redis_url: str) -> Iterator[Wire]:
    made = Wire(redis_url)
    yield made
    made.close()


def test_a_leader_whose_renewals_are_unanswered_stops_before_its_key_can_expire(
    replica: Replica, wire: Wire, redis_client: redis.Redis, namespace: str
) -> None:
    leader = replica(wire.client, ttl=timedelta(seconds=2))
    wait_until(leader.leads)
    wire.silent.set()
    while leader.leads():
        time.sleep(0.005)
    left = redis_client.pttl(keys.leader(namespace))
    assert left > LEADER_MARGIN / timedelta(milliseconds=1) / 2, "its term outlived, or nearly outlived, its key"


@pytest.mark.alone
def test_a_renewal_that_has_no_answer_for_as_long_as_one_takes_is_not_leader_at_once(
    replica: Replica, wire: Wire, redis_client: redis.Redis, namespace: str
) -> None:
    leader = replica(wire.answering_within(0.3), ttl=timedelta(seconds=30), renewal=timedelta(seconds=0.3))
    wait_until(leader.leads)
    wire.silent.set()
    silent = time.monotonic()
    wait_until(lambda: not leader.leads(), 5)
    assert time.monotonic() - silent < 2, "it waited for more than the answer to one renewal"
    assert redis_client.get(keys.leader(namespace)) == leader.token.encode()
    wire.silent.clear()
    wait_until(leader.leads, 5)
    assert leader.epoch == 1, "nobody else led: the same term"


def test_a_term_is_trusted_from_when_the_request_left_not_from_when_the_answer_came(
    replica: Replica, wire: Wire, redis_client: redis.Redis, namespace: str
) -> None:
    wire.reply_delay = 0.9
    leader = replica(wire.client, ttl=timedelta(seconds=4), renewal=timedelta(seconds=60))
    wait_until(leader.leads, 8)
    while leader.leads():
        time.sleep(0.005)
    assert redis_client.pttl(keys.leader(namespace)) > 0, "the key was gone before its leader stopped"


def test_a_renewal_whose_reply_was_lost_does_not_leave_the_fleet_without_a_leader(
    replica: Replica, wire: Wire, redis_client: redis.Redis, namespace: str
) -> None:
    elected: list[int] = []
    leader = replica(wire.client, ttl=timedelta(seconds=30), on_elected=lambda: elected.append(1))
    wait_until(leader.leads)
    wire.lose_next_reply.set()
    wait_until(lambda: len(elected) == 2, 2)  # not leader for the moment until its next campaign
    wait_until(leader.leads, 2)
    assert leader.epoch == 1, "the same term goes on"


def test_a_campaign_whose_reply_was_lost_is_recognised_by_its_token(
    replica: Replica, wire: Wire, redis_client: redis.Redis, namespace: str
) -> None:
    redis_client.set(keys.leader(namespace), "another", px=1000)
    leader = replica(wire.client, ttl=timedelta(seconds=30), renewal=timedelta(seconds=9))
    wire.lose_next_reply.set()  # the one that refuses is lost, or the one that elects
    wait_until(lambda: redis_client.get(keys.leader(namespace)) == leader.token.encode())
    wait_until(leader.leads)
    assert leader.epoch == 1 == int(redis_client.get(keys.epoch(namespace)) or 0)


def test_a_token_under_another_epoch_is_not_renewed_and_the_epoch_is_learnt(
    replica: Replica, redis_client: redis.Redis, namespace: str
) -> None:
    """A campaign that arrives late opens a term that its sender does not know of; its fires would all be refused."""
    leader = replica()
    wait_until(leader.leads)
    redis_client.incr(keys.epoch(namespace))
    wait_until(lambda: leader.leads() and leader.epoch == 2)


def test_a_replica_that_is_not_fit_gives_the_lock_up_and_campaigns_again_when_it_is(
    replica: Replica, redis_client: redis.Redis, namespace: str
) -> None:
    complaint: list[str] = []
    first = replica(fit=lambda: complaint[0] if complaint else None)
    wait_until(first.leads)
    second = replica()
    complaint.append("its alarm clock died")
    wait_until(second.leads, 2)
    assert not first.leads()
    second.stop()
    assert redis_client.get(keys.leader(namespace)) is None, "unfit, it campaigned"
    complaint.clear()
    wait_until(first.leads, 2)
    assert first.epoch == 3


def test_a_replica_that_cannot_be_judged_does_not_lead(replica: Replica) -> None:
    judged: list[int] = []

    def broken() -> str | None:
        judged.append(1)
        raise RuntimeError("the check is broken")

    leader = replica(fit=broken)
    wait_until(lambda: len(judged) > 3)
    assert not leader.leads()


def test_a_campaign_that_breaks_is_followed_by_another(replica: Replica) -> None:
    broken: list[int] = []

    def on_elected() -> None:
        if not broken:
            broken.append(1)
            raise RuntimeError("nobody thought of this")

    leader = replica(on_elected=on_elected)
    wait_until(lambda: broken and leader.leads())


@pytest.mark.alone
def test_busy_threads_do_not_starve_renewal(replica: Replica) -> None:
    stop = threading.Event()

    def spin() -> None:
        number = 0
        while not stop.is_set():
            number += 1

    leader = replica(ttl=timedelta(seconds=2), renewal=timedelta(milliseconds=300))
    wait_until(leader.leads)
    busy = [threading.Thread(target=spin) for _ in range(6)]
    for thread in busy:
        thread.start()
    try:
        ends = time.monotonic() + 2.5
        while time.monotonic() < ends:
            assert leader.leads()
            time.sleep(0.02)
    finally:
        stop.set()
        for thread in busy:
            thread.join()


def test_each_term_has_an_epoch_of_its_own_and_a_follower_leads_at_once_after_a_release(
    replica: Replica, redis_client: redis.Redis, namespace: str
) -> None:
    first = replica(ttl=timedelta(seconds=60), renewal=timedelta(seconds=20))
    wait_until(first.leads)
    second = replica(ttl=timedelta(seconds=60), renewal=timedelta(seconds=20))
    wait_until(lambda: redis_client.pubsub_numsub(keys.leader(namespace))[0][1] == 2)
    assert first.epoch == 1
    first.resign()
    assert not first.leads()
    wait_until(second.leads, 2)  # without the wake-up it would ask again in 20 s
    assert second.epoch == 2


def test_followers_ask_again_in_the_moment_in_which_the_lock_lapses(
    replica: Replica, redis_client: redis.Redis, namespace: str
) -> None:
    redis_client.set(keys.leader(namespace), "killed", px=1500)
    follower = replica(ttl=timedelta(seconds=60), renewal=timedelta(seconds=20))
    wait_until(follower.leads, 3)


def test_a_leader_that_is_cut_off_is_followed_once_its_term_has_ended_never_before(
    replica: Replica, wire: Wire
) -> None:
    first = replica(wire.client, ttl=timedelta(seconds=1))
    wait_until(first.leads)
    second = replica(ttl=timedelta(seconds=1))
    wire.silent.set()
    ends = time.monotonic() + 4
    while not second.leads():
        assert time.monotonic() < ends
        time.sleep(0.005)
    assert not first.leads(), "two replicas believe that they lead"
