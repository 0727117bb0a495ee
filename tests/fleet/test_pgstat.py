"""Rates of tables are differences of two readings, each in a transaction of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, create_engine, text

from fleet.errors import NotDeclared
from fleet.pgstat import COUNTED, Reading, rates, read, read_now
from fleet.storage.engine import psycopg_url
from tests.fleet.conftest import MINIMAL, Fleet
from tests.waiting import wait_until

NAMES = list(COUNTED)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = create_engine(psycopg_url(database_url))
    with made.begin() as connection:
        connection.execute(text("DROP SCHEMA IF EXISTS other CASCADE"))
        connection.execute(text("DROP TABLE IF EXISTS letters"))
        connection.execute(text("CREATE TABLE letters (id int PRIMARY KEY)"))
        connection.execute(text("CREATE SCHEMA other CREATE TABLE letters (id int)"))
    yield made
    made.dispose()


def scan(engine: Engine, times: int) -> None:
    """So many scans by a session that ends, and so tells of them at once."""
    with engine.connect() as connection:
        for _ in range(times):
            connection.execute(text("SELECT * FROM public.letters"))
        connection.invalidate()


def scans(reading: dict[str, Reading]) -> int:
    return reading["public.letters"].counters[NAMES.index("scans")]


def test_within_one_transaction_postgresql_shows_the_same_figures_twice(engine: Engine) -> None:
    with engine.connect() as connection:
        first = scans(read(connection, ["letters"]))
        scan(engine, 5)
        wait_until(lambda: scans(read_now(engine, ["letters"])) >= first + 5)
        assert scans(read(connection, ["letters"])) == first


def test_readings_in_transactions_of_their_own_show_what_happened_between_them(engine: Engine) -> None:
    first = read_now(engine, ["public.letters"])
    scan(engine, 5)
    wait_until(lambda: scans(read_now(engine, ["public.letters"])) >= scans(first) + 5)
    second = read_now(engine, ["public.letters"])
    seen = rates(first, second)["public.letters"]
    rate = seen.each_second[NAMES.index("scans")]
    assert rate is not None
    assert rate * seen.over.total_seconds() == pytest.approx(scans(second) - scans(first))


def test_a_name_stands_for_the_table_in_every_schema(engine: Engine) -> None:
    assert list(read_now(engine, ["letters"])) == ["other.letters", "public.letters"]
    assert list(read_now(engine, ["other.letters"])) == ["other.letters"]


def test_a_table_that_does_not_exist_is_said_with_the_one_that_was_meant(engine: Engine) -> None:
    with pytest.raises(NotDeclared, match=r"no table named 'leters'. Did you mean 'letters'\?"):
        read_now(engine, ["leters"])
    with pytest.raises(NotDeclared, match=r"Did you mean 'other.letters'\?"):
        read_now(engine, ["letters", "othr.letters"])


def test_counters_that_were_set_back_give_no_rate() -> None:
    first = Reading(datetime(2026, 3, 1, tzinfo=UTC), (90, 8, 0, 0, 0, 0), live=1, dead=0)
    second = replace(first, at=first.at + timedelta(seconds=10), counters=(30, 28, 0, 0, 0, 0))
    assert rates({"t": first}, {"t": second})["t"].each_second[:3] == (None, 2.0, 0.0)


def test_the_command_shows_rates_and_refuses_what_is_no_table(
    engine: Engine, fleet: Fleet, database_url: str, redis_url: str
) -> None:
    where = {"FLEET_REDIS_URL": redis_url, "FLEET_DATABASE_URL": database_url}
    shown = fleet(MINIMAL, "pgstat", "letters", "--every", "1", **where).stdout
    assert "A second, over 1 s" in shown
    assert "public.letters" in shown and "other.letters" in shown
    refused = fleet(MINIMAL, "pgstat", "leters", **where)
    assert refused.returncode == 2
    assert refused.stderr == "fleet: There is no table named 'leters'. Did you mean 'letters'?\n"
