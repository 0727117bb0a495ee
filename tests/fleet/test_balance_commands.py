"""`fleet balance` as a person meets it: what may run and why, off and on, held and released, and who did it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import redis

from fleet.broker import keys
from tests.fleet.conftest import Fleet, WriteApp
from tests.fleet.test_elastic_check import ENTRY, LEFT

WHY = ("--because", "the bank asked for a quiet night", "--by", "ann")


@pytest.fixture
def at_two(fleet: Fleet, write_app: WriteApp, redis_url: str, namespace: str) -> Fleet:
    """The command line at 02:00 in Berlin, of an application with one elastic entry."""
    root: Path = write_app(actors=LEFT)
    schedule = root / "config" / "schedule.py"
    schedule.write_text(schedule.read_text().replace("SCHEDULE = []", f"{ENTRY}\nSCHEDULE = [night()]"))
    settings = {
        "FLEET_REDIS_URL": redis_url,
        "FLEET_NAMESPACE": namespace,
        "FLEET_CLOCK_ORIGIN": "2026-11-30T02:00:00+01:00",
        "FLEET_CLOCK_ANCHOR": datetime.now(UTC).isoformat(),
    }
    return lambda *command: fleet(root, *command, **settings)


def test_an_entry_is_held_until_a_time_of_its_zone_and_released(
    at_two: Fleet, redis_client: redis.Redis, namespace: str
) -> None:
    assert " greet " in at_two("balance").stdout and "0 (cron slot)" in at_two("balance").stdout
    said = at_two("balance", "hold", "greet", "05:30", *WHY)
    assert said.returncode == 0, said.stderr
    assert "greet is held until 2026-11-30 04:30 UTC; chunks that run end by themselves." in said.stdout
    left = redis_client.pttl(keys.hold(namespace, "greet"))
    assert 3.4 * 3_600_000 < left <= 3.5 * 3_600_000
    assert " held " in at_two("balance").stdout
    released = at_two("balance", "release", "greet", *WHY)
    assert "greet is released; it was held until 04:30 UTC by ann: the bank asked for a quiet" in released.stdout
    again = at_two("balance", "release", "greet", *WHY)
    assert again.returncode == 1 and again.stdout == "greet was not held.\n"
    rows = [fields for _, fields in redis_client.xrange(keys.audit(namespace))]
    assert [(row[b"who"], row[b"what"], row[b"subject"]) for row in rows] == [
        (b"ann", b"hold", b"greet"),
        (b"ann", b"release", b"greet"),
    ]
    assert (rows[0][b"before"], rows[0][b"after"]) == (b"not held", b"held until 2026-11-30 04:30 UTC")


def test_a_hold_ends_at_the_deadline_at_the_latest(at_two: Fleet) -> None:
    assert at_two("balance", "hold", "greet", "06:15", *WHY).returncode == 0
    late = at_two("balance", "hold", "greet", "06:16", *WHY)
    assert late.returncode == 2
    assert "to its deadline, 2026-11-30 05:15 UTC at the latest" in late.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("hold", "gret", "05:30", *WHY), "There is no elastic entry named 'gret'. Did you mean 'greet'?"),
        (("hold", "greet", "25:00", *WHY), "UNTIL '25:00': there is no such time of day"),
        (("hold", "greet", "soon", *WHY), "UNTIL 'soon': give a time of day in Europe/Berlin, HH:MM."),
        (("hold", "greet", "05:30", "--because", "5"), "--because '5': say it in a few words"),
        (("off", "--because", ""), "--because '': say it in a few words"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(at_two: Fleet, command: tuple[str, ...], said: str) -> None:
    done = at_two("balance", *command)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_paused_entry_may_run_nothing_and_the_table_says_so(at_two: Fleet) -> None:
    assert at_two("pause", "greet", *WHY).returncode == 0
    assert " paused " in at_two("balance").stdout
    assert at_two("resume", "greet", *WHY).returncode == 0
    assert " paused " not in at_two("balance").stdout


def test_switched_off_leases_are_gone_at_once_and_it_says_by_whom(
    at_two: Fleet, redis_client: redis.Redis, namespace: str
) -> None:
    redis_client.set(keys.allowance(namespace, "greet"), '{"places": 1, "reason": "calm", "until": 0}')
    assert " calm " in at_two("balance").stdout
    off = at_two("balance", "off", *WHY)
    assert off.stdout == "The balancer is off: cron slots stand. Nothing that runs is cut off.\n"
    assert not redis_client.exists(keys.allowance(namespace, "greet"))
    assert "The balancer is off, by ann since 2026-11-30 01:00 UTC: the bank asked" in at_two("balance").stdout
    assert "it was off by ann: the bank asked for a quiet night" in at_two("balance", "on", *WHY).stdout
    assert at_two("balance", "on", *WHY).returncode == 1
    whats = [fields[b"what"] + b" " + fields[b"subject"] for _, fields in redis_client.xrange(keys.audit(namespace))]
    assert whats[:2] == [b"balance off", b"balance on"]
