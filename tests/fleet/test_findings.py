"""What is found wrong in a reading: ages and lags, dead letters, depth that does not drain, and no more."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fleet import Budget, Lane, Retry, findings
from fleet.alerts import KINDS, Finding
from fleet.clock import clock
from fleet.declarations import ZERO
from fleet.errors import DeclarationInvalid
from fleet.ledger import LedgerLine
from fleet.probe import QueueReading
from fleet.readings import STALE_AFTER, ActorReading, ExpiredReading, LaneReading, Readings, SweepReading
from fleet.thresholds import DEFAULT, Limit
from fleet.workers.presence import Job, Report

MINUTE = timedelta(minutes=1)
CALM = QueueReading("post", 3, 0, 2, 9, 5 * MINUTE, MINUTE, MINUTE, MINUTE, 10.0, 11.0, 0, 2)
LANE = Lane(
    "mail",
    ("post",),
    waits_for="a test",
    processes=2,
    threads=4,
    budget=Budget(timedelta(seconds=20), timedelta(seconds=40), because="no job of a test comes near it"),
    retry=Retry(attempts=3, first=timedelta(seconds=1), longest=timedelta(seconds=1)),
)


def of(**figures: Any) -> list[Finding]:
    return list(findings.of_queue(replace(CALM, **figures), DEFAULT, "mail"))


def kinds(**figures: Any) -> list[str]:
    return [finding.kind for finding in of(**figures)]


def taken(**parts: Any) -> Readings:
    now = clock.now()
    whole = {"queues": {"post": CALM}, "lanes": {"mail": LaneReading(None, 2, 2)}, "actors": {}, "taken": {"beat": now}}
    return Readings(**{"at": now, "by": "beat", **whole, **parts})


def test_a_calm_queue_is_nothing() -> None:
    assert of() == []


def test_a_deep_queue_that_drains_is_no_alarm() -> None:
    assert kinds(ready=1_000_000, rate_in=100.0, rate_out=101.0) == []


def test_an_old_message_on_a_shallow_queue_is_one() -> None:
    (found,) = of(ready=1, oldest_age=31 * MINUTE)
    assert (found.kind, found.figure, found.found, found.threshold) == ("queue_old", "oldest_age", "0:31:00", "0:30:00")
    assert (found.subject, found.lane) == ("post", "mail")
    assert found.means.endswith(f"Hurt: {DEFAULT.hurts}.")


@pytest.mark.parametrize(
    ("figures", "found"),
    [
        ({"ready": 1_001, "rate_in": 10.0, "rate_out": 10.0}, ["queue_deep"]),
        ({"ready": 1_001, "rate_in": 11.0, "rate_out": 10.0}, ["queue_deep"]),
        ({"ready": 1_000, "rate_in": 11.0, "rate_out": 10.0}, []),
        ({"ready": 1_001, "rate_in": None, "rate_out": None}, []),  # nobody knows; its age will tell
        ({"ready": 1_001, "rate_in": None, "rate_out": None, "consumers": 0}, ["queue_deep", "queue_unserved"]),
        ({"ready": 1_001, "oldest_age": 31 * MINUTE, "rate_in": 0.0, "rate_out": 99.0}, ["queue_old", "queue_deep"]),
        ({"lag_p95": 31 * MINUTE}, ["queue_lag"]),
        ({"lag_worst": 31 * MINUTE}, []),
        ({"dead": 1_000_000, "dead_growth": 0}, []),
        ({"dead": 1, "dead_growth": 1}, ["dead_letters"]),
        ({"consumers": 0, "rate_out": 0.0}, ["queue_unserved"]),
        ({"consumers": 0, "rate_out": None}, ["queue_unserved"]),
        ({"consumers": 0, "rate_out": 5.0}, []),  # workers of stock Dramatiq, or a lane that ended just now
        ({"consumers": 0, "rate_out": 0.0, "oldest_age": MINUTE}, []),  # a deploy's gap
        ({"consumers": 0, "rate_out": 0.0, "ready": 0, "oldest_age": None}, []),
        ({"consumers": 0, "rate_out": 0.0, "ready": 0, "delayed": 500}, ["queue_unserved"]),  # retries that are due
        ({"broken": "ns:post: WRONGTYPE"}, ["queue_broken"]),
        ({"oldest_age": None, "lag_p95": None, "dead_growth": None, "consumers": None}, []),
    ],
)
def test_what_is_found_of_a_queue(figures: dict[str, Any], found: list[str]) -> None:
    assert kinds(**figures) == found


def test_a_reading_that_is_stale_or_missing_is_a_finding_of_its_own() -> None:
    assert list(findings.of_roles(taken())) == []
    old = taken(at=clock.now() - STALE_AFTER - MINUTE)
    assert [(found.kind, found.subject) for found in findings.of_roles(old)] == [("probe_stale", "readings")]
    assert [found.found for found in findings.of_roles(None)] == ["none at all"]


@pytest.mark.parametrize(("silent", "found"), [(2 * MINUTE, []), (4 * MINUTE, ["housekeeping"]), (1_441 * MINUTE, [])])
def test_one_of_the_two_that_take_readings_and_stopped_is_named(silent: timedelta, found: list[str]) -> None:
    now = clock.now()
    roles = taken(taken={"beat": now, "housekeeping": now - silent})
    assert [one.subject for one in findings.of_roles(roles)] == found


def line(verdict: Any, entry: str = "nightly", count: int = 1) -> LedgerLine:
    return LedgerLine(entry, verdict, clock.now(), clock.now(), count, clock.now())


def test_a_slot_that_no_beat_fired_in_time_names_its_entry_and_lane() -> None:
    lines = [line("expired", count=2), line("fired"), line("coalesced", "other")]
    (found,) = findings.of_entries(taken(), lines, {"nightly": LANE}, [], {})
    assert (found.kind, found.subject, found.lane) == ("slot_expired", "nightly", "mail")
    assert found.found == "2 slots that no beat fired in time"


def test_a_slot_that_no_worker_took_up_names_what_filled_the_lane() -> None:
    jobs = tuple(Job(f"{number}", actor, clock.real_now()) for number, actor in enumerate(["sort", "sort", "weigh"]))
    reports = [
        Report("worker", "mail", jobs=jobs),
        Report("worker", "mail", jobs=jobs[:1]),
        Report("worker", "another", jobs=jobs),
    ]
    actors = {
        "sort": ActorReading(12, ZERO, 8 * MINUTE),
        "weigh": ActorReading(900, ZERO, MINUTE),
        "of_another": ActorReading(9, ZERO, 99 * MINUTE),
    }
    reading = taken(expired={"nightly": ExpiredReading(1, 30), "well": ExpiredReading(0, 0)}, actors=actors)
    owns = {"sort": "post", "weigh": "post", "of_another": "elsewhere"}
    (found,) = findings.of_entries(reading, [], {"nightly": LANE}, reports, owns)
    assert found.found == "1 slots that no worker took up in time, 30 messages that a slot had sent"
    assert "Lane mail (2 x 4 threads) runs 3 x sort, 1 x weigh" in found.means
    assert "lately sort 12 jobs in 0:08:00, weigh 900 jobs in 0:01:00; 3 wait, 2 are held." in found.means


def test_sweeps_that_were_cut_or_have_failures_are_two_kinds() -> None:
    reading = taken(sweeps={"rows": SweepReading(1, 20), "others": SweepReading(0, 1), "well": SweepReading(0, 0)})
    found = [(one.kind, one.subject, one.found) for one in findings.of_sweeps(reading)]
    assert found == [
        ("sweep_cut", "rows", "1 passes"),
        ("sweep_failed", "rows", "20 rows"),
        ("sweep_failed", "others", "1 rows"),
    ]


def test_every_kind_has_a_rule_and_each_queue_those_of_its_limits() -> None:
    rules = findings.rules({"post": DEFAULT})
    assert {kind for kind in rules if ":" not in kind} == set(KINDS)
    assert rules["queue_lag:post"] == findings.Rule(DEFAULT.lag.for_, DEFAULT.lag.keep)


def test_a_limit_has_a_reason_and_no_negative_time() -> None:
    with pytest.raises(DeclarationInvalid, match="say why"):
        Limit(5, for_=ZERO, keep=ZERO, because="5 minutes")
    with pytest.raises(DeclarationInvalid, match="zero or more"):
        Limit(5, for_=-MINUTE, keep=ZERO, because="more than anybody could send by hand")
    with pytest.raises(DeclarationInvalid, match="durations"):
        replace(DEFAULT, age=DEFAULT.depth)
