"""What a sender left behind is relayed: once by however many, and past what cannot be sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

import dramatiq
import pytest
from cryptography.fernet import Fernet
from sqlalchemy import func, select, update

from fleet import outbox
from fleet.broker import keys
from fleet.broker.broker import MARKED, NotAccepted
from fleet.payloads import PayloadEncoder
from fleet.relay import Relayed, relay
from fleet.standing import standing
from fleet.storage.tables import OutboxRow
from tests.broker.conftest import OwnRedis
from tests.fleet.post import QUEUE, Post


@pytest.fixture
def post(redis_url: str, migrated_url: str, namespace: str) -> Iterator[Post]:
    made = Post(redis_url, migrated_url, namespace)
    yield made
    made.close()


@contextmanager
def senders_that_crash(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within it nothing is sent after a commit."""
    with monkeypatch.context() as patch:
        patch.setattr(outbox, "_send", lambda *_: None)
        yield


def left_behind(post: Post, monkeypatch: pytest.MonkeyPatch, *names: str, queue: str = QUEUE) -> None:
    actor = post.ship if queue == QUEUE else post.actor(f"ship from {queue}", queue)
    with senders_that_crash(monkeypatch), post.session() as s:
        for name in names:
            actor.send_on_commit(s, name)
        s.commit()


def test_the_relay_takes_what_is_older_than_two_seconds_in_its_order(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind(post, monkeypatch, "a", "b")
    post.age(timedelta(seconds=1.5))
    assert relay(post.engine, post.broker) == Relayed()
    left_behind(post, monkeypatch, "young")
    post.age(timedelta(seconds=0.6))
    assert relay(post.engine, post.broker) == Relayed(sent=2)
    assert (post.queued(), [row.attempts for row in post.rows()]) == (["a", "b"], [0])


def forget(post: Post, *keys_of_it: str) -> None:
    """Redis forgets, as after a failover, or a message that ran and ended."""
    post.broker.client.delete(*keys_of_it)


@pytest.mark.parametrize("ended", [False, True], ids=["it waits", "it has run and ended"])
def test_a_message_that_redis_had_before_a_crash_is_not_sent_again(
    post: Post, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(outbox, "settle", lambda connection, done: None)
        with post.session() as s:
            post.order(s, "a")
            s.commit()
    assert (post.queued(), len(post.rows())) == (["a"], 1)
    if ended:
        forget(post, keys.queue(post.broker.namespace, QUEUE), keys.bodies(post.broker.namespace, QUEUE))
    post.age()
    assert relay(post.engine, post.broker) == Relayed(sent=1)
    assert (post.queued(), post.rows()) == ([] if ended else ["a"], [])


def test_an_accepted_row_is_kept_for_fifteen_seconds_and_its_mark_goes_with_it(post: Post) -> None:
    with post.session() as s:
        post.order(s, "a")
        s.commit()
    marks = keys.outbox(post.broker.namespace)
    assert post.broker.client.zcard(marks) == 1
    week = MARKED.total_seconds()
    assert week < post.broker.client.ttl(marks) <= 2 * week  # type: ignore[operator]
    post.age(timedelta(seconds=14))
    assert relay(post.engine, post.broker) == Relayed()
    post.age(timedelta(seconds=1))
    assert relay(post.engine, post.broker) == Relayed(deleted=1)
    assert (post.rows(accepted=True), post.broker.client.zcard(marks), post.queued()) == ([], 0, ["a"])


def test_what_a_failover_forgot_is_sent_again_under_its_id(post: Post) -> None:
    with post.session() as s:
        for name in ("kept", "forgotten"):
            post.order(s, name)
            s.commit()
    namespace, client = post.broker.namespace, post.broker.client
    forgotten = post.rows(accepted=True)[1].redis_id
    client.lrem(keys.queue(namespace, QUEUE), 0, forgotten)
    client.hdel(keys.bodies(namespace, QUEUE), forgotten)
    client.zrem(keys.outbox(namespace), forgotten)
    post.age(timedelta(seconds=15))
    assert relay(post.engine, post.broker) == Relayed(sent=1, forgotten=1, deleted=1)
    assert post.queued() == ["kept", "forgotten"]
    assert client.lrange(keys.queue(namespace, QUEUE), 1, 1) == [forgotten.encode()]


def test_what_was_accepted_longer_ago_than_redis_knows_ids_is_not_sent_again(post: Post) -> None:
    with post.session() as s:
        post.order(s, "long ago")
        s.commit()
    (row,) = post.rows(accepted=True)
    namespace, client = post.broker.namespace, post.broker.client
    for key in (keys.queue(namespace, QUEUE), keys.bodies(namespace, QUEUE), keys.outbox(namespace)):
        client.delete(key)
    with post.engine.begin() as connection:
        long_ago = {"accepted_at": OutboxRow.accepted_at - MARKED, "relay_at": OutboxRow.accepted_at - MARKED}
        connection.execute(update(OutboxRow).where(OutboxRow.id == row.id).values(long_ago))
    assert relay(post.engine, post.broker) == Relayed(deleted=1)
    assert (post.queued(), post.rows()) == ([], [])


def test_a_mark_that_nobody_took_away_goes_after_a_week(post: Post) -> None:
    marks, (now, _) = keys.outbox(post.broker.namespace), post.broker.client.time()
    week = int(MARKED.total_seconds())
    post.broker.client.zadd(marks, {"old": now - week - 1, "young": now - week + 100})
    with post.session() as s:
        sent = post.ship.send_on_commit(s, "a")
        s.commit()
    assert set(post.broker.client.zrange(marks, 0, -1)) == {b"young", sent.options["redis_message_id"].encode()}


def test_what_one_holds_the_others_pass_over(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    left_behind(post, monkeypatch, "a", "b")
    post.age()
    first = select(OutboxRow).where(OutboxRow.namespace == post.broker.namespace).order_by(OutboxRow.id).limit(1)
    with post.session() as holder:
        holder.scalars(first.with_for_update()).one()
        assert relay(post.engine, post.broker) == Relayed(sent=1)
        assert post.queued() == ["b"]
    assert relay(post.engine, post.broker) == Relayed(sent=1)


def test_four_relays_at_once_send_each_row_once(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{number}" for number in range(3000)]
    left_behind(post, monkeypatch, *names)
    post.age()
    sent: list[int] = []
    threads = [threading.Thread(target=lambda: sent.append(relay(post.engine, post.broker).sent)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(sent) == 3000
    assert sorted(post.queued()) == sorted(names)
    assert post.rows() == []


def test_a_delay_counts_from_the_writing_however_late_it_is_relayed(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    with senders_that_crash(monkeypatch), post.session() as s:
        for seconds in (5, 60, 61):
            post.ship.send_with_options_on_commit(s, args=(seconds,), delay=timedelta(seconds=seconds))
        s.commit()
    post.age(timedelta(seconds=20))
    relay(post.engine, post.broker)
    assert post.queued() == [5]  # its delay is over
    now, _ = post.broker.client.time()
    due = post.broker.client.zrange(keys.due(post.broker.namespace, QUEUE), 0, -1, withscores=True)
    assert [round(at / 1000 - now) in (40 + more, 41 + more) for more, (_, at) in enumerate(due)] == [True, True]


def test_a_row_of_another_namespace_is_left_to_its_own_fleet(
    post: Post, monkeypatch: pytest.MonkeyPatch, redis_url: str, migrated_url: str
) -> None:
    other = Post(redis_url, migrated_url, f"{post.broker.namespace}-other")
    left_behind(other, monkeypatch, "a")
    other.age()
    assert relay(post.engine, post.broker) == Relayed()
    assert relay(other.engine, other.broker) == Relayed(sent=1)
    other.broker.flush(QUEUE)
    other.close()


def test_what_cannot_be_sent_is_parked_with_its_reason_and_blocks_nothing(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    post.broker.lanes = MappingProxyType(dict.fromkeys((QUEUE, "broken")))  # type: ignore[arg-type]
    left_behind(post, monkeypatch, "of no lane", queue="gone")
    left_behind(post, monkeypatch, "unreadable", "too large")
    left_behind(post, monkeypatch, "refused", queue="broken")
    left_behind(post, monkeypatch, "good")
    post.broker.client.set(keys.queue(post.broker.namespace, "broken"), "no list")
    _, unreadable, too_large, *_ = post.rows()
    with post.engine.begin() as connection:
        for id, message in ((unreadable.id, b"\x80"), (too_large.id, b"x" * 1_100_000)):
            connection.execute(update(OutboxRow).where(OutboxRow.id == id).values(message=message))
    post.age()
    assert relay(post.engine, post.broker) == Relayed(sent=1, refused=4)
    assert post.queued() == ["good"]
    said = [row.refused or "" for row in post.rows()]
    for reason, part in zip(
        said, ("serves the queue 'gone'", "cannot be read by this version", "1,100,000 bytes", "WRONGTYPE"), strict=True
    ):
        assert part in reason
    assert [row.attempts for row in post.rows()] == [1, 1, 1, 1]
    stands = standing(post.engine, post.broker)
    assert (stands.waiting, stands.refused) == (4, 4)
    assert timedelta(seconds=10) <= stands.oldest < timedelta(seconds=60)


def test_what_was_parked_is_tried_again_by_itself_and_sent_when_it_can_be(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    post.broker.lanes = MappingProxyType({QUEUE: None})  # type: ignore[arg-type]
    left_behind(post, monkeypatch, "a", queue="new")
    post.age()
    assert relay(post.engine, post.broker) == Relayed(refused=1)
    assert relay(post.engine, post.broker) == Relayed()  # it pauses
    post.broker.lanes = MappingProxyType({QUEUE: None, "new": None})  # type: ignore[arg-type]
    post.age()
    assert relay(post.engine, post.broker) == Relayed(sent=1)
    assert post.queued("new") == ["a"]


def test_the_pause_of_what_is_parked_grows_to_five_minutes(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    post.broker.lanes = MappingProxyType({QUEUE: None})  # type: ignore[arg-type]
    left_behind(post, monkeypatch, "a", queue="gone")
    pauses = []
    left = func.extract("epoch", OutboxRow.relay_at - func.clock_timestamp())
    for _ in range(12):
        post.age(timedelta(minutes=6))
        assert relay(post.engine, post.broker) == Relayed(refused=1)
        with post.session() as s:
            pauses.append(round(s.scalars(select(left).where(OutboxRow.namespace == post.broker.namespace)).one()))
    assert pauses[:3] == [2, 4, 8]
    assert pauses[-1] == 300


def test_a_sealed_row_is_relayed_by_who_has_no_key_and_stays_sealed(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, before = Fernet.generate_key().decode(), dramatiq.get_encoder()
    try:
        dramatiq.set_encoder(PayloadEncoder(lambda: (key,)))
        left_behind(post, monkeypatch, "Erika")
        dramatiq.set_encoder(PayloadEncoder(lambda: ()))
        post.age()
        assert relay(post.engine, post.broker) == Relayed(sent=1)
        [body] = post.broker.client.hvals(keys.bodies(post.broker.namespace, QUEUE))
        assert b"Erika" not in body  # type: ignore[operator]
        dramatiq.set_encoder(PayloadEncoder(lambda: (key,)))
        assert post.queued() == ["Erika"]
    finally:
        dramatiq.set_encoder(before)


def test_a_redis_that_takes_nothing_ends_the_pass_and_parks_nothing(
    tmp_path: Path, migrated_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = OwnRedis(tmp_path)
    server.start()
    post = Post(server.url, migrated_url, namespace)
    left_behind(post, monkeypatch, *(f"{number}" for number in range(600)))
    post.age()
    server.client.config_set("maxmemory", 1)
    with pytest.raises(NotAccepted, match="maxmemory"):
        relay(post.engine, post.broker)
    server.client.config_set("maxmemory", 0)
    server.kill()
    with pytest.raises(NotAccepted, match="did not answer"):
        relay(post.engine, post.broker)
    server.start()
    assert {(row.refused, row.attempts) for row in post.rows()} == {(None, 0)}
    assert relay(post.engine, post.broker) == Relayed(sent=600)
    post.close()
    server.stop()
