"""What `fleet status` shows of the jobs that run now."""

from __future__ import annotations

import re
from datetime import timedelta
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis
from rich.console import Console

from fleet import Budget, Lane, Retry, flow
from fleet.app import App
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.views import lanes_table, running_table
from fleet.workers.presence import Job, Presence, Report, present
from tests.fleet.conftest import MINIMAL, Fleet
from tests.waiting import wait_until

MINUTE = timedelta(minutes=1)
WHY = "no job of a test comes near it"
RETRY = Retry(attempts=1, first=MINUTE, longest=MINUTE)


def job(name: str, minutes: float, *, actor: str = "sync", phase: str = "body", soft: timedelta | None = None) -> Job:
    since = clock.real_now() - minutes * MINUTE
    return Job(name, actor, since, "banks", phase, soft, soft * 1.4 if soft else None)


def drawn(reports: list[Report], app: App | None = None, most: int = 30, *, colour: bool = False) -> list[str]:
    """The lines of the table's body, and its caption."""
    console = Console(file=StringIO(), width=160, force_terminal=colour, color_system="standard" if colour else None)
    console.print(running_table(reports, app, most))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [line for line in text.splitlines() if "│" in line or "more" in line]


def report(*jobs: Job) -> Report:
    return Report("worker", "bank-lane", pid=4711, host="night-1", jobs=jobs)


def test_a_job_is_shown_with_its_time_budget_phase_lane_and_process() -> None:
    (line,) = drawn([report(job("m-1", 3.2, soft=5 * MINUTE))])
    for part in ("sync", "bank-lane", "body", "3m12s of 5m/7m", "night-1", "4711", "m-1"):
        assert part in line


def test_a_job_over_its_soft_budget_is_red_and_stands_first_whatever_runs_longer() -> None:
    slow, over = job("slow", 50, soft=60 * MINUTE), job("over", 3, soft=MINUTE)
    first, second = drawn([report(slow, over)], colour=True)
    assert "over" in first and "\x1b[31m" in first
    assert "slow" in second and "\x1b[31m" not in second
    assert "over" in drawn([report(slow, over)], most=1)[0]


def test_what_does_not_fit_is_counted() -> None:
    lines = drawn([report(*(job(f"m-{number}", number) for number in range(5)))], most=2)
    assert "m-4" in lines[0] and "m-3" in lines[1]
    assert "and 3 more" in lines[2]


def test_a_job_without_a_budget_says_so_by_a_dash() -> None:
    assert "2m of -/-" in drawn([report(job("m", 2))])[0]


@pytest.mark.parametrize(
    ("soft", "hard", "actor", "of_actor", "whose"),
    [
        (5.0, 7.0, "sync", True, "actor"),
        (10.0, 15.0, "sync", False, "lane"),
        (1.0, 3.0, "sync", True, "message"),
        (1.0, 6.0, "sync", False, "message"),
        (5.0, 8.0, "sync", True, "other code"),
        (5.0, 7.0, "unheard_of", True, "-"),
    ],
)
def test_a_job_is_shown_with_the_one_its_budget_came_from(
    soft: float, hard: float, actor: str, of_actor: bool, whose: str
) -> None:
    lane_budget = Budget(10 * MINUTE, 15 * MINUTE, because="what this lane waits for takes so long")
    lane = Lane("bank-lane", ["banks"], "a bank", processes=1, threads=1, budget=lane_budget, retry=RETRY)
    declared = SimpleNamespace(
        budget=Budget(5 * MINUTE, 7 * MINUTE, because="two pages of a bank") if of_actor else None
    )
    app = App(Path(), {"sync": cast(Any, declared)}, (lane,), ())
    runs = Job("m-1", actor, clock.real_now(), "banks", "body", soft * MINUTE, hard * MINUTE)
    (line,) = drawn([report(runs)], app)
    assert f" {whose} " in line


def test_names_out_of_a_message_are_shown_as_they_are_and_not_read_as_markup() -> None:
    (line,) = drawn([report(job("[/red]", 1, actor="[bold]x"))])
    assert "[/red]" in line and "[bold]x" in line


def test_status_shows_what_runs_and_counts_only_children_that_serve(
    fleet: Fleet, redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    running = (job("m-1", 3.2, actor="greet", soft=5 * MINUTE),)
    reports = [
        Report("worker", "greetings", pid=1, jobs=running, phase="retiring"),
        Report("worker", "greetings", pid=2, phase="serving"),
        Report("worker", "greetings", pid=3, phase="starting"),
    ]
    presence = Presence(redis_client, namespace, lambda: reports)
    presence.start()
    try:
        wait_until(lambda: len(present(redis_client, namespace)) == 3, 5)
        shown = fleet(MINIMAL, "status", FLEET_REDIS_URL=redis_url, FLEET_NAMESPACE=namespace).stdout
    finally:
        presence.stop()
    assert " of 5m/7m" in shown and "m-1" in shown
    assert "1/1" in shown


def test_status_shows_how_late_jobs_begin_what_comes_and_ends_and_who_serves_a_queue(
    redis_url: str, namespace: str
) -> None:
    broker = FleetBroker(url=redis_url, namespace=namespace)
    lane = Lane("bank-lane", ("banks", "idle"), "a test", 1, 1, Budget(MINUTE, 2 * MINUTE, because=WHY), RETRY)
    app = cast(App, SimpleNamespace(lanes=(lane,)))
    counts = {"q:banks:started": 50, f"q:banks:lag.{flow.bucket(3_000)}": 50, "q:banks:ended": 500}
    broker.client.hset(keys.flow(namespace, flow.minute_of(clock.now()) - 1), mapping=counts)
    broker.client.zadd(keys.heartbeats(namespace), {"one": clock.real_now().timestamp() * 1000})
    broker.client.hset(keys.workers(namespace), "one", '["banks"]')
    console = Console(file=StringIO(), width=160)
    console.print(lanes_table(app, broker, []))
    broker.client.connection_pool.disconnect()
    banks, idle = (line for line in console.file.getvalue().splitlines() if "│" in line)  # type: ignore[attr-defined]
    cells = [[cell.strip() for cell in line.split("│")] for line in (banks, idle)]
    assert re.fullmatch(r"[234](\.\d)?s", cells[0][6])
    assert re.fullmatch(r"-/1[0-2]\d", cells[0][7])
    assert (cells[0][8], cells[1][6:9]) == ("1", ["-", "-/-", "0"])
