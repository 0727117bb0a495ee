"""The command line as a person meets it: tables, and errors of one sentence without a traceback."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fleet import embedded
from tests.fleet.conftest import HEAD, MINIMAL, Fleet, WriteApp

ROOT = Path(__file__).parents[2]


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is taken and at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def fleet(fleet_process: Fleet) -> Fleet:
    """A process of its own, from nothing, as a person starts it."""
    return fleet_process


def error(fleet: Fleet, *command: str, app: Path = MINIMAL, **settings: str) -> str:
    done = fleet(app, *command, **settings)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("fleet: ")
    assert done.stderr.count("\n") == 1, "one sentence"
    return done.stderr


def test_check_counts_what_it_judged(fleet: Fleet) -> None:
    said = fleet(MINIMAL, "check").stdout.splitlines()
    assert said[0] == "1 actors, 1 lanes, 1 entries: nothing found."
    assert len(said) == 2 and said[1].startswith("Graces not compared, no manifest found for: greetings.")


def test_check_refuses_a_term_that_one_late_renewal_would_end(fleet: Fleet) -> None:
    said = error(fleet, "check", FLEET_LEADER_TTL="4s", FLEET_LEADER_RENEWAL="2s")
    assert "FLEET_LEADER_TTL 0:00:04 is under twice FLEET_LEADER_RENEWAL 0:00:02 and the margin of 0.5 s" in said
    assert "Give a ttl of 0:00:04.500000 or more" in said


def test_jobs_shows_budget_reason_and_place(fleet: Fleet) -> None:
    shown = fleet(MINIMAL, "jobs").stdout
    for part in ("greet", "5s", "9s", "prints one line to a terminal", "actors/greetings.py:8"):
        assert part in shown


def test_jobs_shows_every_name_and_line_whole(fleet: Fleet) -> None:
    shown = fleet(ROOT, "jobs").stdout
    assert "update_transactions_by_bank_account" in shown
    assert re.search(r"actors/transaction_postprocess\.py:\d+ ", shown)
    assert "…" not in shown


def test_jobs_states_for_each_lane_by_when_a_row_is_terminal_and_what_that_adds_up_from(
    fleet: Fleet, write_app: WriteApp
) -> None:
    app = write_app(
        lanes="[lane('main', 'greetings'), lane('house', 'tidying')]",
        schedule="[entry('tidy', every=None, cron='*/10 0-6 * * *'), entry('greet')]",
        actors="@greetings.actor(budget=Budget(60 * SECOND, 90 * SECOND, because='the slowest greeting ever heard'))\n"
        "def greet_slowly(): ...\n",
    )
    (app / "janitors").mkdir()
    (app / "janitors" / "__init__.py").touch()
    (app / "janitors" / "tidy.py").write_text(f"{HEAD}\ntidying = queue('tidying')\n@tidying.actor\ndef tidy(): ...\n")
    said = lines(fleet(app, "jobs").stdout)
    assert (
        "A job's row is terminal at the latest 17h11m after its hard budget: the lane's longest hard budget "
        "1m30s + the slowest janitor's pass 17h10m (tidy: 17h10m until it comes, 2s to run)" in said
    )
    assert said.count("A job's row is terminal at the latest") == 2
    assert said.index("Lane main") < said.index("greet_slowly") < said.index("17h11m") < said.index("Lane house")


def test_a_lane_without_janitors_has_a_bound_too(fleet: Fleet) -> None:
    said = lines(fleet(MINIMAL, "jobs").stdout)
    assert "A job's row is terminal at the latest 6m after its hard budget" in said
    assert "longest hard budget 1m + 5m (no janitor is scheduled; on_lost alone ends it)" in said


def lines(shown: str) -> str:
    """Without the line breaks of the terminal."""
    return " ".join(shown.split())


def test_schedule_at_a_minute_answers_with_what_fires_then_and_nothing_else(fleet: Fleet) -> None:
    shown = fleet(ROOT, "schedule", "--at", "03:10").stdout
    assert "nightly_audit" in shown and "03:10:00" in shown
    assert "run_evals" not in shown
    assert "nightly_audit" not in fleet(ROOT, "schedule", "--at", "03:11").stdout


def test_a_time_of_day_that_is_none_is_refused_with_an_example(fleet: Fleet) -> None:
    assert "--at '25:00': give a time of day as HH:MM" in error(fleet, "schedule", "--at", "25:00")


def test_a_lane_that_nobody_declared_is_answered_with_the_one_that_was_meant(fleet: Fleet) -> None:
    assert "no lane named 'greeting'. Did you mean 'greetings'?" in error(fleet, "work", "greeting")
    assert "Known: greetings." in error(fleet, "work", "zzz")


def test_a_lane_that_nobody_declared_is_refused_also_while_the_actors_cannot_be_imported(
    fleet: Fleet, write_app: WriteApp
) -> None:
    broken = write_app(actors="import a_package_nobody_installed\n")
    assert "no lane named 'mian'. Did you mean 'main'?" in error(fleet, "work", "mian", app=broken)


def test_a_setting_that_cannot_be_read_is_refused_also_while_the_actors_cannot_be_imported(
    fleet: Fleet, write_app: WriteApp
) -> None:
    broken = write_app(actors="import a_package_nobody_installed\n")
    assert "FLEET_REDIS_URL: " in error(fleet, "work", "main", app=broken, FLEET_REDIS_URL="nonsense")


@pytest.mark.parametrize("command", [["status"], ["beat"], ["work", "greetings"]])
def test_without_a_redis_url_it_says_which_setting_is_missing(fleet: Fleet, command: list[str]) -> None:
    assert "FLEET_REDIS_URL is not set" in error(fleet, *command)


def test_migrate_without_a_database_says_which_setting_is_missing(fleet: Fleet) -> None:
    assert "FLEET_DATABASE_URL is not set" in error(fleet, "migrate")


def test_a_redis_that_does_not_answer_is_named_without_its_password(fleet: Fleet, closed_port: int) -> None:
    said = error(fleet, "status", FLEET_REDIS_URL=f"redis://somebody:s3cret@127.0.0.1:{closed_port}/0")
    assert f"Redis at 127.0.0.1:{closed_port} does not answer" in said
    assert "s3cret" not in said


def test_a_wrong_redis_password_is_said_and_not_printed(fleet: Fleet, redis_client: redis.Redis) -> None:
    port = redis_client.connection_pool.connection_kwargs["port"]
    said = error(fleet, "status", FLEET_REDIS_URL=f"redis://somebody:s3cret@127.0.0.1:{port}/0")
    assert "refused the user or password of FLEET_REDIS_URL" in said
    assert "s3cret" not in said


def test_a_postgresql_that_does_not_answer_is_named_without_its_password(fleet: Fleet, closed_port: int) -> None:
    said = error(fleet, "migrate", FLEET_DATABASE_URL=f"postgresql://books:s3cret@127.0.0.1:{closed_port}/books")
    assert f"PostgreSQL at postgresql+psycopg://books:***@127.0.0.1:{closed_port}/books does not answer" in said
    assert "s3cret" not in said


@pytest.mark.parametrize(
    ("command", "setting"),
    [("status", "FLEET_REDIS_URL"), ("migrate", "FLEET_DATABASE_URL"), ("up", "FLEET_DATABASE_URL")],
)
def test_an_address_that_is_no_url_is_refused_by_the_settings_name_without_its_value(
    fleet: Fleet, command: str, setting: str
) -> None:
    said = error(fleet, command, **{setting: "books:s3cret@somewhere"})
    assert setting in said and "give a URL" in said
    assert "s3cret" not in said


def test_a_folder_that_is_no_application_is_named(fleet: Fleet, tmp_path: Path) -> None:
    assert f"{tmp_path} is not an application's root" in error(fleet, "check", app=tmp_path)


def test_a_command_that_does_not_exist_is_an_error_of_usage(fleet: Fleet) -> None:
    done = fleet(MINIMAL, "stauts")
    assert done.returncode == 2
    assert "Did you mean 'status'" in done.stderr


def test_status_of_a_fleet_that_does_not_run_shows_its_empty_lanes(
    fleet: Fleet, redis_url: str, namespace: str
) -> None:
    done = fleet(MINIMAL, "status", FLEET_REDIS_URL=redis_url, FLEET_NAMESPACE=namespace)
    assert done.returncode == 0, done.stderr
    assert "greetings" in done.stdout and "0/1" in done.stdout


def test_migrate_says_at_which_revisions_the_database_stands(
    fleet: Fleet, servers: embedded.Urls, database_url: str
) -> None:
    assert re.search(r"fleet_\d{4}", fleet(MINIMAL, "migrate", FLEET_DATABASE_URL=database_url).stdout)
    both = fleet(ROOT, "migrate", FLEET_DATABASE_URL=database_url).stdout
    assert re.search(r"fleet_\d{4}", both) and "," in both
