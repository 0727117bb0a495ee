"""`fleet schedule`, `fire`, `pause` and `resume` as a person meets them."""

from __future__ import annotations

import pytest
import redis

from fleet import ledger
from fleet.broker import keys
from tests.fleet.conftest import MINIMAL, Fleet

WHY = ("--because", "the bank is closed today", "--by", "ann")


@pytest.fixture
def on_redis(fleet: Fleet, redis_url: str, namespace: str) -> Fleet:
    return lambda *command, **more: fleet(
        MINIMAL, *command, **{"FLEET_REDIS_URL": redis_url, "FLEET_NAMESPACE": namespace, **more}
    )


def test_a_paused_entry_is_shown_as_such_until_it_is_resumed(on_redis: Fleet) -> None:
    said = on_redis("pause", "greet", *WHY)
    assert said.returncode == 0 and "greet is paused." in said.stdout
    assert "paused by ann at " in on_redis("schedule").stdout
    assert "it was paused before (by ann at " in on_redis("pause", "greet", *WHY).stdout
    assert "greet is resumed; it was paused by ann at " in on_redis("resume", "greet", *WHY).stdout
    assert "paused" not in on_redis("schedule").stdout
    again = on_redis("resume", "greet", *WHY)
    assert again.returncode == 1 and again.stdout == "greet was not paused.\n"


def test_a_fire_by_hand_and_its_ledger(on_redis: Fleet, redis_client: redis.Redis, namespace: str) -> None:
    on_redis("pause", "greet", *WHY)
    said = on_redis("fire", "greet", "--because", "somebody asked for it", "--by", "bob")
    assert said.returncode == 0, said.stderr
    assert "greet is sent to the queue greetings: message greet@now-" in said.stdout
    assert "Its slots stay paused (by ann at " in said.stdout
    assert redis_client.llen(keys.queue(namespace, "greetings")) == 1
    shown = on_redis("schedule", "--ledger", "greet").stdout
    assert "manual" in shown and "bob: somebody asked for it" in shown and "ann: the bank is closed today" in shown
    assert "nothing yet" not in shown


def test_without_saying_who_it_was_this_user_on_this_host(
    on_redis: Fleet, redis_client: redis.Redis, namespace: str
) -> None:
    on_redis("fire", "greet")
    (line,) = ledger.read(redis_client, namespace, "greet")
    assert " on " in line.by and line.because == ""


@pytest.mark.parametrize("command", [("fire",), ("pause", *WHY[:2]), ("resume", *WHY[:2]), ("schedule", "--ledger")])
def test_an_entry_that_nobody_declared_is_answered_with_the_one_that_was_meant(
    on_redis: Fleet, command: tuple[str, ...]
) -> None:
    name, *options = command
    said = on_redis(name, "gret", *options)
    assert said.returncode == 2
    assert said.stderr == "fleet: There is no entry named 'gret'. Did you mean 'greet'?\n"


def test_a_pause_needs_a_reason_in_words(on_redis: Fleet) -> None:
    assert on_redis("pause", "greet").returncode == 2
    said = on_redis("pause", "greet", "--because", "5 minutes")
    assert said.returncode == 2 and "--because '5 minutes': say it in a few words" in said.stderr


def test_an_empty_ledger_says_so(on_redis: Fleet) -> None:
    assert "nothing yet" in on_redis("schedule", "--ledger").stdout


def test_the_schedule_of_a_redis_that_does_not_answer_is_shown_and_says_what_is_not_known(on_redis: Fleet) -> None:
    shown = on_redis("schedule", FLEET_REDIS_URL="redis://127.0.0.1:1/0")
    assert shown.returncode == 0 and "greet" in shown.stdout
    assert "Redis did not say which entries are paused" in shown.stdout


def test_only_one_entry_is_shown_when_it_is_named(fleet: Fleet) -> None:
    from tests.fleet.test_cli import ROOT

    shown = fleet(ROOT, "schedule", "nightly_audit").stdout
    assert "nightly_audit" in shown and "run_evals" not in shown
