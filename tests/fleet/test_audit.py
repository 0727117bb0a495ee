"""The audit: a row an act, in the database or in Redis, whatever an id holds; and what the commands leave in it."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
import redis
from sqlalchemy import text

from fleet import audit
from fleet.broker import FleetBroker, keys
from fleet.errors import FleetError
from fleet.storage import database
from tests.broker.conftest import proxy as proxy
from tests.broker.letters import fill
from tests.broker.proxy import Proxy
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


@pytest.mark.parametrize(
    ("done", "error", "after"),
    [
        (None, redis.TimeoutError("no answer"), "was tried, and nobody knows whether it was done: TimeoutError"),
        (None, redis.ConnectionError("reset"), "was tried, and nobody knows whether it was done: ConnectionError"),
        ("2 of 3", redis.TimeoutError("no answer"), "broke off after 2 of 3: TimeoutError, so that some more may be"),
        ("2 of 3", ValueError("a body"), "broke off after 2 of 3: ValueError"),
        ("2 of 3", KeyboardInterrupt(), "broke off after 2 of 3: KeyboardInterrupt"),
        (None, FleetError("it was not paused"), None),
        (None, redis.ResponseError("NOPERM"), None),
    ],
)
def test_an_act_that_broke_off_leaves_what_is_known_of_it_and_one_that_was_refused_nothing(
    broker: FleetBroker, monkeypatch: pytest.MonkeyPatch, done: str | None, error: BaseException, after: str | None
) -> None:
    monkeypatch.setattr(audit, "_database", lambda: None)
    with pytest.raises(type(error)), audit.noting(broker, **ACT) as note:
        note.before, note.after = "3 letters", done
        raise error
    assert [(row.before, row.after) for row in audit.read(broker, 5)] == ([("3 letters", after)] if after else [])


def test_a_command_whose_reply_is_lost_leaves_a_row_that_says_so(
    fleet: Fleet, broker: FleetBroker, proxy: Proxy
) -> None:
    def fire() -> tuple[int, str]:
        said = fleet(MINIMAL, "fire", "greet", FLEET_REDIS_URL=proxy.url, FLEET_NAMESPACE=broker.namespace)
        return said.returncode, said.stderr

    assert fire()[0] == 0  # after which Redis knows the scripts
    before = proxy.scripts
    assert fire()[0] == 0
    proxy.lose_reply(proxy.scripts - before)
    code, said = fire()
    assert code == 2 and re.search("Redis did not confirm it: .*fleet schedule --ledger greet", said)
    (row,) = audit.read(broker, 1)
    assert (row.what, row.after) == ("fire", "was tried, and nobody knows whether it was done: ConnectionError")


def test_a_redis_that_does_not_answer_is_said_and_not_swallowed() -> None:
    away = FleetBroker(url="redis://127.0.0.1:1/0", namespace="n", middleware=[])
    with pytest.raises(redis.ConnectionError):
        audit.read(away, 1)
