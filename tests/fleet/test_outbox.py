"""What is sent on commit is sent when its transaction is committed, and never otherwise."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import dramatiq
import pytest
from dramatiq.broker import Broker
from dramatiq.message import Message
from dramatiq.middleware import Middleware
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError, ProgrammingError
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from fleet import outbox
from fleet.actor import FleetActor
from fleet.app import process_broker
from fleet.broker import keys
from fleet.errors import MessageTooLarge
from fleet.outbox import OutboxMissing
from fleet.relay import relay
from fleet.storage.engine import psycopg_url
from fleet.testing import forget_settings
from tests.conftest import ROOT
from tests.fleet.post import QUEUE, Order, Post


@pytest.fixture
def post(redis_url: str, migrated_url: str, namespace: str) -> Iterator[Post]:
    made = Post(redis_url, migrated_url, namespace)
    yield made
    made.close()


def test_a_message_goes_out_with_the_commit(post: Post) -> None:
    with post.session() as s:
        post.order(s, "a")
        assert post.queued() == []
        s.commit()
    assert post.queued() == ["a"]
    assert (post.rows(), len(post.rows(accepted=True))) == ([], 1)


def test_a_rollback_sends_nothing(post: Post) -> None:
    with post.session() as s:
        post.order(s, "a")
        s.rollback()
        post.order(s, "b")  # and left without a commit
    assert post.queued() == []
    assert (post.rows(), post.orders()) == ([], [])


def test_a_rollback_asks_nobody_what_is_there(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come of a database that is gone."""
    asked: list[Any] = []
    monkeypatch.setattr(outbox, "_send", lambda *_: asked.append(1))
    with post.session() as s:
        with s.begin_nested():
            post.order(s, "a")
        s.rollback()
        assert asked == []
        post.order(s, "b")
        s.commit()
    assert asked == [1]


def test_of_savepoints_only_what_survived_is_sent(post: Post) -> None:
    with post.session() as s, s.begin():
        post.order(s, "before")
        with s.begin_nested():
            post.order(s, "kept")
            with pytest.raises(ZeroDivisionError), s.begin_nested():
                post.order(s, "inner, rolled back")
                raise ZeroDivisionError
        outer = s.begin_nested()
        with s.begin_nested():
            post.order(s, "released into one that is rolled back")
        outer.rollback()
        assert post.queued() == []  # a savepoint's release is no commit
        post.order(s, "after")
    assert post.queued() == ["before", "kept", "after"] == post.orders()


def test_a_session_of_many_transactions_sends_each_ones_own(post: Post) -> None:
    with post.session() as s:
        for name in "abc":
            post.order(s, name)
            s.commit()
            post.order(s, name.upper())
            s.rollback()
        s.commit()  # of nothing
    assert post.queued() == ["a", "b", "c"]


def test_the_order_of_a_session_is_kept(post: Post) -> None:
    names = [f"{number}" for number in range(1200)]  # more than one call takes
    with post.session() as s:
        for name in names:
            post.ship.send_on_commit(s, name)
        s.commit()
    assert post.queued() == names


def test_a_commit_that_fails_sends_nothing(post: Post) -> None:
    with post.engine.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS strict (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)"))
    with post.session() as s:
        post.order(s, "a")
        s.execute(text("INSERT INTO strict VALUES (1), (1)"))
        with pytest.raises(IntegrityError):
            s.commit()
        s.rollback()
        post.order(s, "b")
        s.commit()
    assert post.queued() == ["b"] == post.orders()


def test_the_engines_own_session_sends_at_the_end_of_its_block(environment: Any, post: Post) -> None:
    from fleet.storage import session

    with session() as s:
        post.order(s, "a")
    with pytest.raises(ZeroDivisionError), session() as s:
        post.order(s, "b")
        raise ZeroDivisionError
    assert post.queued() == ["a"]


def test_the_send_needs_no_connection_beside_the_one_that_committed(
    redis_url: str, migrated_url: str, namespace: str
) -> None:
    small = Post(redis_url, migrated_url, namespace, pool_size=1, max_overflow=0, pool_timeout=0.1)
    with small.session() as s:
        small.order(s, "a")
        s.commit()
    assert small.queued() == ["a"]
    small.close()


def test_a_session_that_joins_a_transaction_sends_nothing_before_that_one_is_committed(
    redis_url: str, migrated_url: str, namespace: str
) -> None:
    post = Post(redis_url, migrated_url, namespace, pool_size=1, max_overflow=0, pool_timeout=5)
    began = time.monotonic()
    with post.engine.connect() as connection, connection.begin() as whole:
        for name in ("a", "b"):
            with Session(connection, join_transaction_mode="create_savepoint") as s:
                post.order(s, name)
                s.commit()
        assert post.queued() == []
        assert time.monotonic() - began < 5, "it waited for a second connection"
        whole.commit()
    assert [row.actor for row in post.rows()] == ["ship", "ship"]  # and the relay sends them
    post.age()
    relay(post.engine, post.broker)
    assert post.queued() == ["a", "b"]
    post.close()


def test_a_scoped_session_is_a_session(post: Post) -> None:
    scoped = scoped_session(sessionmaker(post.engine))
    post.order(scoped(), "a", lambda _, name: post.ship.send_on_commit(scoped, name))
    scoped.commit()
    scoped.remove()
    assert post.queued() == ["a"]


def test_delay_and_options_are_kept(post: Post) -> None:
    with post.session() as s:
        post.ship.send_with_options_on_commit(
            s,
            args=("a",),
            kwargs={"how": "fast"},
            delay=timedelta(minutes=1),
            max_age=7,
            on_success=post.ship,
            expires_at=datetime(2026, 3, 2, 1, tzinfo=UTC),
        )
        s.commit()
    ((id, due),) = post.broker.client.zrange(keys.due(post.broker.namespace, QUEUE), 0, -1, withscores=True)
    message = dramatiq.Message.decode(post.broker.client.hget(keys.bodies(post.broker.namespace, QUEUE), id))
    assert (message.args, message.kwargs, message.options["max_age"]) == (("a",), {"how": "fast"}, 7)
    assert message.options["on_success"] == "ship"
    assert message.options["expires_at"] == int(datetime(2026, 3, 2, 1, tzinfo=UTC).timestamp() * 1000)
    seconds, _ = post.broker.client.time()
    assert 55 < due / 1000 - seconds <= 61


def test_the_hooks_before_are_called_when_it_is_written_and_those_after_when_redis_has_it(
    redis_url: str, migrated_url: str, namespace: str
) -> None:
    heard: list[tuple[str, Any, int | None]] = []

    class Hooks(Middleware):
        def before_enqueue(self, broker: Broker, message: Message[Any], delay: int | None) -> None:
            message.options["stamped"] = True
            heard.append(("before", message.args[0], delay))

        def after_enqueue(self, broker: Broker, message: Message[Any], delay: int | None) -> None:
            heard.append(("after", message.args[0], delay))

    post = Post(redis_url, migrated_url, namespace, Hooks())
    with post.session() as s:
        sent = post.ship.send_on_commit(s, "a")
        post.ship.send_with_options_on_commit(s, args=("b",), delay=60_000)
        assert heard == [("before", "a", None), ("before", "b", 60_000)]
        s.commit()
    assert heard[2:] == [("after", "a", None), ("after", "b", 60_000)]
    body = post.broker.client.hget(keys.bodies(namespace, QUEUE), sent.options["redis_message_id"])
    assert dramatiq.Message.decode(body) == sent
    assert sent.options["stamped"] is True
    post.close()


def test_what_is_too_large_raises_where_it_is_sent(post: Post) -> None:
    with post.session() as s, pytest.raises(MessageTooLarge):
        post.ship.send_on_commit(s, "x" * 1_100_000)
    assert post.rows() == []


def test_a_database_without_an_outbox_is_named(post: Post, servers: Any) -> None:
    other = create_engine(psycopg_url(servers.database_url))  # the server's own database, never migrated
    with Session(other) as s, pytest.raises(OutboxMissing, match=r"'postgres' .* no table 'outbox'.*fleet migrate"):
        post.ship.send_on_commit(s, "a")
    other.dispose()
    with Session(create_engine("sqlite://")) as s, pytest.raises(OutboxMissing, match="sqlite"):
        post.ship.send_on_commit(s, "a")


def test_what_is_no_session_is_named(post: Post) -> None:
    with pytest.raises(TypeError, match="takes SQLAlchemy's Session, found Engine"):
        post.ship.send_on_commit(post.engine, "a")  # type: ignore[arg-type]


def test_a_producer_needs_of_the_outbox_what_the_documentation_says_and_no_more(
    post: Post, migrated_url: str, namespace: str
) -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    said = re.search(r"producers with an\s+outbox need (.*?) on `outbox`", page, re.DOTALL)
    assert said is not None
    rights, name = re.findall(r"`([A-Z]+)`", said[1]), f"producer_{namespace.replace('-', '_')}"
    granted = [f"{', '.join(rights)} ON outbox", "INSERT, SELECT ON orders", "USAGE ON SEQUENCE orders_id_seq"]
    with post.engine.begin() as owner:
        owner.execute(text(f"CREATE ROLE {name} LOGIN PASSWORD 'p'"))
        for grant in granted:
            owner.execute(text(f"GRANT {grant} TO {name}"))
    producer = create_engine(psycopg_url(migrated_url).set(username=name, password="p"))

    def orders(order: str) -> None:
        with Session(producer) as s:
            post.order(s, order)
            s.commit()

    try:
        orders("a")
        assert post.queued() == ["a"] and post.rows() == [] and len(post.rows(accepted=True)) == 1
        for right in rights:
            with post.engine.begin() as owner:
                owner.execute(text(f"REVOKE {right} ON outbox FROM {name}"))
            with pytest.raises(ProgrammingError) if right != "UPDATE" else nullcontext():
                orders(f"without {right}")
            with post.engine.begin() as owner:
                owner.execute(text(f"GRANT {right} ON outbox TO {name}"))
        assert post.queued() == ["a"], "what it may not mark as sent it does not send"
    finally:
        producer.dispose()
        with post.engine.begin() as owner:
            owner.execute(text(f"DROP OWNED BY {name}"))
            owner.execute(text(f"DROP ROLE {name}"))


class _Away:
    """A Redis where nothing listens."""

    url = "redis://127.0.0.1:1/0"


def test_with_redis_away_the_commit_stands_nothing_raises_and_it_is_said_once(
    migrated_url: str, redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    for level in ("error", "warning"):
        monkeypatch.setattr(outbox.log, level, lambda event, **_: said.append(event))
    away = Post(_Away.url, migrated_url, namespace)
    monkeypatch.setattr(outbox, "_HELD_OFF_SECONDS", 0.0)
    for name in "abc":
        with away.session() as s:
            away.order(s, name)
            s.commit()
    assert (away.orders(), len(away.rows()), said) == (["a", "b", "c"], 3, ["outbox_not_sent"])
    away.broker.__dict__.pop("client"), away.broker.__dict__.pop("own_scripts")
    away.broker._url = redis_url
    with away.session() as s:
        away.order(s, "d")
        s.commit()
    assert (away.queued(), said[1:]) == (["d"], ["outbox_sends_again"])
    away.age()
    relay(away.engine, away.broker)
    assert sorted(away.queued()) == ["a", "b", "c", "d"]
    away.close()


def test_while_redis_is_away_only_a_commit_in_two_seconds_asks_it(
    migrated_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    away = Post(_Away.url, migrated_url, namespace)
    accept = away.broker.accept
    monkeypatch.setattr(away.broker, "accept", lambda *a, **k: (asked.append(1), accept(*a, **k)))
    for name in "abc":
        with away.session() as s:
            away.order(s, name)
            s.commit()
    assert (len(asked), away.orders()) == (1, ["a", "b", "c"])
    away.close()


def test_an_order_that_was_not_flushed_has_no_id_to_send(post: Post) -> None:
    with post.session() as s:
        order = Order(namespace=post.broker.namespace, name="a")
        s.add(order)
        s.flush()
        post.ship.send_on_commit(s, order.id)
        s.commit()
        assert post.queued() == [order.id]


def typed(actor: FleetActor[[int, str], None], s: Session) -> None:
    """Checked by mypy: the parameters are the actor's."""
    actor.send_on_commit(s, 1, "a")
    actor.send_on_commit(s, "a", 1)  # type: ignore[arg-type]
    actor.send_on_commit(s, 1)  # type: ignore[call-arg]


def test_that_one_server_was_away_holds_off_no_send_to_the_next_that_this_process_is_configured_for() -> None:
    broker = process_broker()
    outbox._outage.found(broker, ConnectionError("away"), 1)
    assert outbox._outage.holds_off(broker)
    forget_settings()
    assert not outbox._outage.holds_off(broker)
