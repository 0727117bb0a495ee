"""The night's judge of what left the house: green when each thing was done once, red when one was not, or twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import delete, update

from books import charging, submitting
from books.models import AgentRun, OutsideEffect, RunKind, RunStatus, Subscription, SubscriptionStatus
from books.night import judge_outside
from books.night.world import World
from books.seeding import Expected
from fleet.storage import session
from tests.books.gateway import SandboxGateway, sandbox_gateway
from tests.books.test_agent_runs import completion
from tests.books.test_charging import subscribe

RUNS, PAYING = 2, 3


@pytest.fixture
def morning(
    migrated: object, world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[World, Expected, SandboxGateway]:
    """A night's filings and charges, done; its log stays when its gateway is gone."""
    from books import clients
    from config.settings import settings

    world.reply = lambda *_: completion("OK")
    with session() as s:
        for model in (OutsideEffect, Subscription):
            s.execute(delete(model))
        runs = [
            AgentRun(
                kind=RunKind.SUBMIT, status=RunStatus.APPROVED, idempotency_key=str(uuid4()), customer="c", input={}
            )
            for _ in range(RUNS)
        ]
        s.add_all(runs)
        s.flush()
        expected = Expected(submit_runs=[run.id for run in runs])
    paying, poor = [subscribe() for _ in range(PAYING)], subscribe(method="pm_declined_1")
    expected.paying_subscriptions = [row for row, _ in paying]
    expected.declined_subscriptions = [poor[0]]
    expected.other_subscriptions = [subscribe(days_ago=-1)[0]]
    with sandbox_gateway(tmp_path) as gateway:
        for name, value in gateway.settings().items():
            monkeypatch.setenv(name, value)
        settings.cache_clear()
        clients.forget()
        gateway.script(send=["silent", None, "dropped"])
        for run in expected.submit_runs:
            submitting.submit_approved(run, token="m")
        for subscription in [*paying, poor]:
            charging.charge(*subscription, token="m")
    nowhere = Path("/nowhere")
    return World("", "", gateway.url, "", nowhere, nowhere, gateway.log, nowhere), expected, gateway


def red(world: World, expected: Expected) -> set[str]:
    return {line.claim for line in judge_outside.judge(world, expected, None) if line.verdict == "red"}


def test_a_night_in_which_each_thing_was_done_once_is_green(morning: Any) -> None:
    world, expected, _ = morning
    found = list(judge_outside.judge(world, expected, (17, 3)))
    assert [line for line in found if line.verdict == "red"] == []
    (faults,) = [line.found for line in found if "faults" in line.claim]
    assert faults == "silent 1, dropped 1; asked 2"


def test_a_thing_that_was_done_twice_is_red_whatever_its_keys(morning: Any) -> None:
    world, expected, gateway = morning
    twice = next(line for line in gateway.lines(taken=True, side="charges"))
    with gateway.log.open("a") as log:
        log.write(json.dumps(twice | {"key": "another"}) + "\n")
    assert red(world, expected) == {"filings or charges made twice"}


def test_a_row_that_says_more_than_the_gateways_log_is_red(morning: Any) -> None:
    world, expected, gateway = morning
    kept = [line for line in gateway.lines() if line["reference"] != f"run {expected.submit_runs[0]}"]
    kept = [
        line
        for line in kept
        if not (line["reference"] or "").startswith(f"subscription {expected.paying_subscriptions[0]} ")
    ]
    gateway.log.write_text("".join(json.dumps(line) + "\n" for line in kept))
    assert red(world, expected) == {
        "approved runs filed once, by the authority's log",
        "subscriptions charged for one period, by the gateway's log",
    }


def test_a_refused_card_that_does_not_say_so_and_a_charge_of_what_was_not_due_are_red(morning: Any) -> None:
    world, expected, gateway = morning
    with session() as s:
        poor = Subscription.id == expected.declined_subscriptions[0]
        s.execute(update(Subscription).where(poor).values(status=SubscriptionStatus.ACTIVE))
    line = next(line for line in gateway.lines(taken=True, side="charges"))
    with gateway.log.open("a") as log:
        log.write(json.dumps(line | {"reference": f"subscription {expected.other_subscriptions[0]} 2026-03-01"}) + "\n")
    assert red(world, expected) == {"refused cards that say so", "charges of what was not due"}


def test_a_thing_that_did_not_end_is_red(morning: Any) -> None:
    world, expected, _ = morning
    with session() as s:
        s.execute(update(OutsideEffect).where(OutsideEffect.kind == "filing").values(status="running"))
    assert red(world, expected) == {"things on their way out at the end"}
