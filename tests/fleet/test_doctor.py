"""`fleet doctor` against real servers that are configured badly: what it finds, why that matters, what to do."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import create_engine, text

from config.lanes import LANES
from fleet import doctor_fleet, doctor_postgres, doctor_redis
from fleet.app import App, load
from fleet.broker import FleetBroker, keys
from fleet.broker.connection import client_from
from fleet.catalogue import publish_catalogue
from fleet.diagnosis import Finding
from fleet.settings import Settings
from fleet.storage.engine import psycopg_url
from tests.broker.conftest import OwnRedis
from tests.conftest import ROOT, Environment
from tests.fleet.conftest import Fleet, WriteApp
from tests.waiting import wait_until

Started = Callable[..., redis.Redis]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Started]:
    """Starts a Valkey with settings as on its command line, in place of the one before."""
    started: list[OwnRedis] = []

    def start(*settings: str) -> redis.Redis:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        own = OwnRedis(folder)
        own.start(*settings)
        started.append(own)
        return own.client

    yield start
    for own in started:
        own.stop()


def told(found: Iterator[Finding], kind: str) -> str:
    """The lines of a kind, each of which says what, why, and what to do."""
    chosen = [one for one in found if one.kind == kind]
    assert kind == "fact" or all(one.why and one.do for one in chosen)
    assert all("\n" not in one.line() for one in chosen)
    return "\n".join(one.line() for one in chosen)


GOOD = ("--appendfsync", "everysec")


def test_a_server_that_is_as_it_should_be_is_told_for_how_durable_it_is_alone(server: Started) -> None:
    (only,) = doctor_redis.examine(server(*GOOD))
    assert only.kind == "fact"
    assert "appendfsync everysec: what was accepted in the last second or two is lost when its machine" in only.found
    assert "no replica" in only.found


@pytest.mark.parametrize(
    ("settings", "kind", "said"),
    [
        (("--maxmemory-policy", "allkeys-lru", "--maxmemory", "1gb"), "problem", "it drops any key: whole queues"),
        (
            ("--maxmemory-policy", "volatile-ttl", "--maxmemory", "1gb"),
            "problem",
            "it drops keys that expire: the lead",
        ),
        (("--maxmemory-policy", "allkeys-lru"), "warning", "Once it has a limit it drops"),
        (("--appendonly", "no", "--save", ""), "problem", "it keeps nothing on disk"),
        (("--appendonly", "no", "--save", "900 1"), "warning", "snapshots alone (save 900 1)"),
        (("--appendfsync", "no"), "warning", "appendfsync is no"),
        (("--replicaof", "127.0.0.1 1"), "problem", "it is a slave"),
        (("--maxmemory", "1mb"), "problem", "MiB are used"),
    ],
)
def test_what_is_wrong_with_a_redis_is_found(server: Started, settings: tuple[str, ...], kind: str, said: str) -> None:
    assert said in told(doctor_redis.examine(server(*GOOD, *settings)), kind)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("--appendfsync", "always"), "appendfsync always: nothing that was accepted is lost"),
        (("--appendfsync", "no"), "the last 30 s is lost when its machine dies"),
        (("--appendonly", "no"), "since the last snapshot, if there is one, is lost"),
    ],
)
def test_the_window_of_what_may_be_lost_is_said(server: Started, settings: tuple[str, ...], said: str) -> None:
    assert said in told(doctor_redis.examine(server(*settings)), "fact")


def test_replicas_that_nobody_waits_for_are_a_window_too(server: Started) -> None:
    master = server(*GOOD)
    port = master.connection_pool.connection_kwargs["port"]
    server("--replicaof", f"127.0.0.1 {port}")
    wait_until(lambda: master.info("replication")["connected_slaves"], 20)
    assert "none waited for" in told(doctor_redis.examine(master), "fact")
    assert "1 replicas listen, and it takes writes without them" in told(doctor_redis.examine(master), "warning")
    master.config_set("min-replicas-to-write", "1")
    assert "at least 1 within 10 s" in told(doctor_redis.examine(master), "fact")


def test_a_user_who_may_not_ask_gets_a_warning_in_place_of_the_answers(server: Started) -> None:
    client = server(*GOOD)
    client.execute_command("ACL", "SETUSER", "few", "on", ">secret", "~*", "+@all", "-@dangerous")
    few = redis.Redis(port=client.connection_pool.connection_kwargs["port"], username="few", password="secret")
    assert "may not give INFO" in told(doctor_redis.examine(few), "warning")


@pytest.fixture
def app(environment: Environment) -> App:
    return load(ROOT)


def test_keys_of_queues_that_no_lane_serves_are_found(app: App, redis_client: redis.Redis, namespace: str) -> None:
    assert told(doctor_fleet.keys_of(app, redis_client, namespace), "problem") == ""
    redis_client.hset(keys.bodies(namespace, "forgotten"), "id", "{}")
    redis_client.hset(keys.bodies(namespace, keys.delayed("later")), "id", "{}")
    redis_client.zadd(keys.dead(namespace, "old"), {"id": 1})
    redis_client.hset(keys.bodies(namespace, "charging"), "id", "{}")
    found = list(doctor_fleet.keys_of(app, redis_client, namespace))
    problems, warnings = told(iter(found), "problem"), told(iter(found), "warning")
    assert "'forgotten' has 1 messages" in problems and "'later' has 1 messages" in problems
    assert "'old', which no lane serves, has 1 dead letters" in warnings
    assert "charging" not in problems + warnings


def test_namespaces_that_begin_alike_are_found_from_either(app: App, redis_client: redis.Redis, namespace: str) -> None:
    redis_client.hset(keys.catalogue(namespace), "actor", "{}")
    redis_client.hset(keys.catalogue(f"{namespace}:test"), "actor", "{}")
    for asked in (namespace, f"{namespace}:test"):
        found = told(doctor_fleet.keys_of(app, redis_client, asked), "problem")
        assert f"{namespace!r} and {f'{namespace}:test'!r} share this database" in found


def test_actors_that_one_side_alone_knows_are_found(app: App, redis_client: redis.Redis, namespace: str) -> None:
    from fleet.app import process_broker

    broker = process_broker()
    assert list(doctor_fleet.catalogue_of(app, broker)) == [], "nothing runs yet"
    publish_catalogue(broker)
    assert list(doctor_fleet.catalogue_of(app, broker)) == []
    published = json.loads(redis_client.hget(keys.catalogue(namespace), "nightly_audit"))  # type: ignore[arg-type]
    redis_client.hset(keys.catalogue(namespace), "of_tomorrow", json.dumps(published))
    redis_client.hdel(keys.catalogue(namespace), "nightly_audit")
    found = told(doctor_fleet.catalogue_of(app, broker), "warning")
    assert "that this code does not know: of_tomorrow" in found
    assert "no worker knows actors of the schedule: nightly_audit" in found


def test_limits_and_settings_of_the_host_are_judged_by_what_lanes_need() -> None:
    bare = Settings(sentry_dsn=None, metrics_port=0)
    said = told(doctor_fleet.host(LANES, bare), "warning")
    assert "no Sentry is configured" in said and "FLEET_METRICS_PORT is 0" in said
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        found = told(doctor_fleet.host(LANES, bare), "problem")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "may open 256 files, and one of lane transaction_sync (128 threads)" in found
    assert "housekeeping" not in found
    assert list(doctor_fleet.host(LANES, Settings(sentry_dsn="https://a@b.invalid/1", metrics_port=9100))) == []


def test_a_database_that_is_as_it_should_be_has_nothing_said_of_it(app: App, migrated_url: str) -> None:
    engine = create_engine(psycopg_url(migrated_url))
    assert list(doctor_postgres.examine(engine, app, 16)) == []
    engine.dispose()


def test_connections_that_lanes_open_are_reckoned_against_what_there_are(app: App, migrated_url: str) -> None:
    engine = create_engine(psycopg_url(migrated_url))
    many = replace(app, lanes=tuple(replace(lane, processes=10) for lane in app.lanes))
    assert "lanes open up to" in told(doctor_postgres.examine(engine, many, 16), "problem")
    assert doctor_postgres.needed(app, 16)["transaction_sync"] == 1 * (16 + 1) + 1
    assert doctor_postgres.needed(app, 16)["transaction_postprocess"] == 2 * (3 + 1) + 1
    engine.dispose()


@pytest.fixture
def set_in_database(migrated_url: str) -> Iterator[Callable[[str], None]]:
    """Changes a setting of the module's database until the test ends."""
    engine = create_engine(psycopg_url(migrated_url), isolation_level="AUTOCOMMIT")
    name = engine.url.database

    def change(setting: str) -> None:
        with engine.connect() as connection:
            connection.execute(text("SET default_transaction_read_only = off"))
            connection.execute(text(f'ALTER DATABASE "{name}" {setting}'))

    yield change
    change("RESET ALL")
    engine.dispose()


@pytest.mark.parametrize(
    ("setting", "kind"), [("default_transaction_read_only = on", "problem"), ("synchronous_commit = off", "warning")]
)
def test_settings_that_cost_rows_are_found(
    app: App, migrated_url: str, set_in_database: Callable[[str], None], setting: str, kind: str
) -> None:
    set_in_database(f"SET {setting}")
    engine = create_engine(psycopg_url(migrated_url))
    assert setting.replace("=", "is") in told(doctor_postgres.examine(engine, app, 16), kind)
    engine.dispose()


def test_migrations_that_are_behind_or_ahead_are_found(app: App, migrated_url: str) -> None:
    engine = create_engine(psycopg_url(migrated_url))
    with engine.begin() as connection:
        stood = [row[0] for row in connection.execute(text("DELETE FROM fleet_migrations RETURNING version_num"))]
    assert "its migrations stand at nothing, and this code needs" in told(
        doctor_postgres.examine(engine, app, 16), "problem"
    )
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO fleet_migrations VALUES ('books_9999')"))
    assert "books_9999, which this code does not know" in told(doctor_postgres.examine(engine, app, 16), "warning")
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM fleet_migrations"))
        connection.execute(text("INSERT INTO fleet_migrations VALUES (:one)"), [{"one": one} for one in stood])
    engine.dispose()


@pytest.mark.parametrize(
    ("ahead", "trip", "kind"),
    [(0.1, 0.0, None), (-0.8, 0.0, "warning"), (3.0, 0.0, "problem"), (1.0, 4.0, None), (-3.0, 1.0, "problem")],
)
def test_a_clock_is_off_by_what_the_questions_round_trip_does_not_explain(
    ahead: float, trip: float, kind: str | None
) -> None:
    before = datetime(2026, 3, 2, 3, 10, tzinfo=UTC)
    there = before + timedelta(seconds=trip / 2 + ahead)
    found = list(doctor_postgres.skew("redis", before, there, before + timedelta(seconds=trip)))
    assert [one.kind for one in found] == ([kind] if kind else [])
    assert not found or ("ahead of" if ahead > 0 else "behind") in found[0].found


def test_the_command_says_a_line_each_and_exits_1_for_a_problem(
    fleet: Fleet, write_app: WriteApp, server: Started
) -> None:
    client = server("--appendonly", "no")
    url = f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}/0"
    root = write_app()
    done = fleet(root, "doctor", FLEET_REDIS_URL=url)
    assert done.returncode == 1 and done.stderr == ""
    *lines, last = done.stdout.splitlines()
    assert all(line.startswith(("problem ", "warning ", "fact ")) for line in lines)
    assert any("promise 1 is not kept" in line and "CONFIG SET appendonly yes" in line for line in lines)
    assert any("The second line of promise 2 is off" in line for line in lines)
    assert last == "1 problems, 3 warnings."
    client.config_set("appendonly", "yes")
    done = fleet(root, "doctor", "--json", FLEET_REDIS_URL=url)
    assert done.returncode == 0, "warnings alone"
    asked: dict[str, Any] = json.loads(done.stdout)
    assert asked["problems"] == 0 and asked["warnings"] == 3
    assert {"kind", "of", "found", "why", "do"} == set(asked["findings"][0])


def test_servers_that_do_not_answer_are_problems_and_no_traceback(fleet: Fleet, write_app: WriteApp) -> None:
    nowhere = {"FLEET_REDIS_URL": "redis://127.0.0.1:1/0", "FLEET_DATABASE_URL": "postgresql://a@127.0.0.1:1/b"}
    done = fleet(write_app(), "doctor", **nowhere)
    assert done.returncode == 1 and done.stderr == ""
    assert "problem redis: Redis at 127.0.0.1:1 does not answer" in done.stdout
    assert "problem postgres: PostgreSQL at postgresql+psycopg://a@127.0.0.1:1/b does not answer" in done.stdout


def test_rights_that_are_missing_are_named(fleet: Fleet, write_app: WriteApp, server: Started) -> None:
    client = server()
    client.execute_command(
        "ACL", "SETUSER", "few", "on", ">secret", "~dramatiq:*", "&*", "+@all", "-@dangerous", "-zadd"
    )
    port = client.connection_pool.connection_kwargs["port"]
    done = fleet(write_app(), "doctor", FLEET_REDIS_URL=f"redis://few:secret@127.0.0.1:{port}/0")
    assert done.returncode == 0  # it could be the console's user, which adds to no sorted set
    assert "lacks rights on Redis in the namespace 'dramatiq': ZADD" in done.stdout
    assert "It can be the user of console" in done.stdout
    client.execute_command("ACL", "SETUSER", "few", "-hgetall")
    done = fleet(write_app(), "doctor", FLEET_REDIS_URL=f"redis://few:secret@127.0.0.1:{port}/0")
    assert done.returncode == 1
    assert "HGETALL, ZADD" in done.stdout


def test_a_server_that_is_lost_while_it_is_examined_is_one_problem(server: Started) -> None:
    from fleet.doctor import _looked

    client = server()
    client.connection_pool.connection_kwargs["port"] = 1
    client.connection_pool.disconnect()
    assert "it stopped answering" in told(_looked("redis", lambda: doctor_redis.examine(client)), "problem")


def test_a_pool_of_connections_to_redis_that_is_smaller_than_a_lane_is_found(redis_url: str) -> None:
    for most, found in ((100, "allows a process 100 connections, and one of lane transaction_sync needs"), (1024, "")):
        with client_from(f"{redis_url}?max_connections={most}") as client:
            said = told(doctor_fleet.connections_to_redis(LANES, client), "problem")
            assert found in said and bool(said) == bool(found)
            assert "housekeeping" not in said


def test_a_broker_of_an_application_needs_no_more_than_it_has(redis_url: str, namespace: str) -> None:
    broker = FleetBroker(lambda: Settings(redis_url=redis_url, namespace=namespace), middleware=[])
    assert list(doctor_fleet.clock_of_redis(broker.client)) == []
    broker.close()
