"""The audit: a row an act, in the database or in Redis, whatever an id holds; and what the commands leave in it."""

from __future__ import annotations

from datetime import timedelta

import pytest
import redis
from sqlalchemy import text

from fleet import audit
from fleet.broker import FleetBroker, keys
from fleet.storage import database
from tests.broker.letters import fill
from tests.conftest import Environment
from tests.fleet.conftest import MINIMAL, Fleet

ACT = {"who": "ann", "what": "pause", "subject": "nightly_audit", "because": "the bank is closed"}


@pytest.fixture
def broker(redis_url: str, namespace: str) -> FleetBroker:
    return FleetBroker(url=redis_url, namespace=namespace, middleware=[])


@pytest.fixture
def on_redis(fleet: Fleet, redis_url: str, namespace: str) -> Fleet:
    """The command line on Redis alone, without a database."""
    return lambda *command, **more: fleet(
        MINIMAL, *command, **{"FLEET_REDIS_URL": redis_url, "FLEET_NAMESPACE": namespace, **more}
    )


def test_a_row_stands_in_the_database_where_there_is_one(environment: Environment, broker: FleetBroker) -> None:
    audit.note(broker, **ACT, before="not paused", after="paused")
    (row,) = audit.read(broker, 5)
    assert (row.who, row.subject, row.before, row.after) == ("ann", "nightly_audit", "not paused", "paused")
    assert row.at.tzinfo is not None
    with database().connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM fleet_audit WHERE namespace = :n"), {"n": broker.namespace})
    assert not broker.client.exists(keys.audit(broker.namespace))


def test_without_a_database_it_stands_in_a_capped_stream(broker: FleetBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_database", lambda: None)
    monkeypatch.setattr(audit, "STREAM_LENGTH", 50)
    for number in range(300):
        audit.note(broker, **{**ACT, "subject": str(number)})
    assert 50 <= broker.client.xlen(keys.audit(broker.namespace)) < 300
    assert [row.subject for row in audit.read(broker, 2)] == ["299", "298"]
    assert audit.read(broker, 1)[0].after is None


def test_rows_are_read_a_page_at_a_time(environment: Environment, broker: FleetBroker) -> None:
    for number in range(5):
        audit.note(broker, **{**ACT, "subject": str(number)})
    first = audit.read(broker, 2)
    assert [row.subject for row in first] == ["4", "3"]
    assert [row.subject for row in audit.read(broker, 2, before=first[-1].at)] == ["2", "1"]
    assert audit.read(broker, 2, before=first[-1].at - timedelta(hours=1)) == []


def test_another_fleets_rows_are_not_shown(environment: Environment, broker: FleetBroker, redis_url: str) -> None:
    other = FleetBroker(url=redis_url, namespace=f"{broker.namespace}-other", middleware=[])
    audit.note(other, **ACT)
    assert audit.read(broker, 5) == []


@pytest.mark.parametrize("id", ["\udcff", "a\x00b", "x" * 5_000, "\x1b[2J"])
def test_a_row_takes_whatever_an_id_holds(environment: Environment, broker: FleetBroker, id: str) -> None:
    audit.note(broker, **{**ACT, "subject": id})
    (row,) = audit.read(broker, 1)
    assert row.subject.isprintable() and len(row.subject) <= 2_000


def test_the_commands_that_act_leave_a_row_with_its_reason(on_redis: Fleet, broker: FleetBroker) -> None:
    fill(broker, 3, queue="greetings")
    said = on_redis("dead", "discard", "--most", "1", "--because", "its job was done by hand", "--yes")
    assert said.returncode == 0, said.stderr
    on_redis("dead", "requeue", "--yes")
    on_redis("pause", "greet", "--because", "the bank is closed today", "--by", "ann")
    on_redis("fire", "greet", "--by", "bob")
    on_redis("resume", "greet", "--because", "the bank is open again", "--by", "ann")
    rows = [(row.what, row.subject, row.because) for row in audit.read(broker, 9)]
    assert rows == [
        ("resume", "greet", "the bank is open again"),
        ("fire", "greet", ""),
        ("pause", "greet", "the bank is closed today"),
        ("dead requeue", "greetings", ""),
        ("dead discard", "greetings", "its job was done by hand"),
    ]
    discarded = audit.read(broker, 9)[-1]
    assert discarded.before == "1 dead letters, the first greetings-000000"
    assert discarded.after == "1 of 1 dropped" and " on " in discarded.who


def test_what_only_shows_or_fails_leaves_none(on_redis: Fleet, broker: FleetBroker) -> None:
    fill(broker, 3, queue="greetings")
    on_redis("dead", "discard")
    on_redis("resume", "greet", "--because", "the bank is open again")
    assert on_redis("drain", "greetings").returncode == 1
    assert audit.read(broker, 5) == []


def test_a_redis_that_does_not_answer_is_said_and_not_swallowed() -> None:
    away = FleetBroker(url="redis://127.0.0.1:1/0", namespace="n", middleware=[])
    with pytest.raises(redis.ConnectionError):
        audit.read(away, 1)
