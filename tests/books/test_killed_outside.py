"""A worker that is killed at any place while something leaves the house: nothing is done twice, nothing is lost.

What was done is what the authority, the gateway and the mail server wrote down, not what our rows say.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
import redis
from sqlalchemy import delete, func, select, update

from books import charging, clients, invoicing, recovery, submitting
from books.models import (
    AgentRun,
    EffectStatus,
    Invoice,
    InvoiceStatus,
    OutsideEffect,
    RunStatus,
    Subscription,
    SubscriptionStatus,
)
from config.settings import settings
from fleet import app as application
from fleet.broker import keys
from fleet.storage import session
from tests.books import test_charging, test_invoicing, test_submitting
from tests.books.gateway import SandboxGateway
from tests.books.killed import HALVES, Janitor, killed_at, killed_everywhere, places
from tests.books.test_agent_runs import completion

ROOT = Path(__file__).parents[2]
OPEN = (EffectStatus.WAITING, EffectStatus.RUNNING)

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@dataclass
class Outside:
    """The servers outside, and what they wrote down."""

    gateway: SandboxGateway
    mail_log: Path

    def done(self) -> Counter[str]:
        """How often each thing was done."""
        mails = [json.loads(line)["idempotency_key"] for line in self.mail_log.read_text().splitlines()]
        return self.gateway.taken() + Counter(mails)


@pytest.fixture
def outside(
    migrated: object, world: Any, gateway: SandboxGateway, mail_log: Path, monkeypatch: pytest.MonkeyPatch
) -> Outside:
    world.reply = lambda *_: completion("OK")
    port = mail_log.with_suffix(".url").read_text().strip().rpartition(":")[2]
    monkeypatch.setenv("BOOKS_SMTP_PORT", port)
    settings.cache_clear()
    application.load(ROOT)
    with session() as s:
        for model in (OutsideEffect, Subscription, Invoice):
            s.execute(delete(model))
    return Outside(gateway, mail_log)


class Filing:
    """Each flow on a row of its own: `work` is what its message does, `name` is what the other side calls it."""

    def __init__(self) -> None:
        self.row = test_submitting.run()
        self.name = f"run {self.row}"

    def work(self) -> None:
        submitting.submit_approved(self.row, token=f"message of {self.name}")

    def status(self) -> str:
        with session() as s:
            return s.get_one(AgentRun, self.row).status

    ended = (RunStatus.SUBMITTED, RunStatus.NEEDS_REVIEW)
    done = RunStatus.SUBMITTED


class Charge:
    def __init__(self) -> None:
        self.subscription = test_charging.subscribe()
        self.name = test_charging.reference(self.subscription)

    def work(self) -> None:
        charging.charge(*self.subscription, token=f"message of {self.name}")

    def status(self) -> str:
        row = test_charging.now(self.subscription[0])
        charged = row.next_period.isoformat() > self.subscription[1]
        return "charged" if charged and row.status == SubscriptionStatus.ACTIVE else row.status

    ended = ("charged", SubscriptionStatus.NEEDS_REVIEW)
    done = "charged"


class Mail:
    def __init__(self) -> None:
        self.row = test_invoicing.invoice(InvoiceStatus.DUE, 14)
        self.name = f"invoice-{test_invoicing.now(self.row).number}"

    def work(self) -> None:
        # Not all that are due: those of which a worker was killed before are due, too.
        invoicing.send_one(self.row, token=f"message of {self.name}")

    def status(self) -> str:
        return test_invoicing.now(self.row).status

    ended = (InvoiceStatus.SENT, InvoiceStatus.NEEDS_REVIEW)
    done = InvoiceStatus.SENT


Flow = Filing | Charge | Mail


JANITOR = Janitor(
    "requeue_stuck_runs",
    recovery.stuck_runs,
    rows=(OutsideEffect, AgentRun),
    queue="agent_realtime",
    works={"submit_approved_run": lambda sent: submitting.submit_approved(*sent.args, token=sent.message_id)},
)


def open_effects() -> list[str]:
    with session() as s:
        return list(s.scalars(select(OutsideEffect.subject).where(OutsideEffect.status.in_(OPEN))))


def judge(outside: Outside, flows: list[Flow]) -> Counter[str]:
    """Assert that each thing was done once, or may have been and waits for a person; returns the statuses."""
    done, statuses = outside.done(), {flow.name: flow.status() for flow in flows}
    assert open_effects() == []
    assert {name: status for flow in flows if (status := statuses[name := flow.name]) not in flow.ended} == {}
    assert {name: done[name] for name in statuses if done[name] > 1} == {}
    assert [flow.name for flow in flows if statuses[flow.name] == flow.done and done[flow.name] != 1] == []
    return Counter(statuses.values())


@HALVES
@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", ["the message comes again", "a janitor passes"])
@pytest.mark.parametrize(("flow", "fewest"), [(Filing, 35), (Charge, 20), (Mail, 35)])
def test_killed_at_any_place_nothing_is_doubled_or_lost(
    outside: Outside, redis_client: redis.Redis, flow: type[Flow], fewest: int, first: str, step: int
) -> None:
    killed = killed_everywhere(flow, fewest, 1 + (first == "a janitor passes" and step > 1), step)
    if first == "a janitor passes":
        JANITOR.pass_over_the_dead(redis_client)
        assert open_effects() == []
    for one in killed:
        one.work()
    JANITOR.pass_over_the_dead(redis_client)
    statuses = judge(outside, killed)
    # In doubt is only what cannot be asked about: a mail whose content was about to go, until its row says that it did.
    assert statuses[EffectStatus.NEEDS_REVIEW] <= (16 // step if flow is Mail else 0)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
@pytest.mark.parametrize("flow", [Filing, Charge])
def test_killed_at_any_place_of_a_stormy_night_nothing_is_doubled(
    outside: Outside, redis_client: redis.Redis, flow: type[Flow], seed: int
) -> None:
    weather = Random(f"{flow.__name__} {seed}")
    sends, asks = [None, "silent", "failed", "dropped", "away", "limited"], [None, None, "away", "dropped"]
    flow().work()
    killed: list[Flow] = []
    for place in range(1 + seed, 70, 3):
        outside.gateway.script(send=weather.choices(sends, k=3), ask=weather.choices(asks, k=4))
        killed.append(flow())
        killed_at(place, killed[-1].work)
    outside.gateway.script(send=[], ask=[])
    for key in (clients.AUTHORITY, clients.PAYMENTS):
        redis_client.delete(keys.parked(application.process_broker().namespace, key))
    for one in killed:
        one.work()
    JANITOR.pass_over_the_dead(redis_client)
    assert judge(outside, killed)[flow.done] == len(killed)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "step", [pytest.param(3, id="every third place"), pytest.param(1, id="every place", marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("taken", [True, False])
def test_a_janitor_that_is_killed_at_any_place_leaves_what_the_next_one_ends(
    outside: Outside, redis_client: redis.Redis, taken: bool, step: int
) -> None:
    left: list[Flow] = []

    def broken_off(_: int) -> Callable[[], object]:
        # It ends what the one before left, so that this one finds a single charge.
        JANITOR.pass_over_the_dead(redis_client)
        left.append(Charge())
        outside.gateway.script(send=["silent" if taken else "dropped"], ask=["away"])
        killed_at(1_000, left[-1].work)  # it raises: nobody says whether the charge is there
        with session() as s:
            s.execute(update(OutsideEffect).values(lease_until=func.now() - timedelta(seconds=1)))
        return JANITOR.one_pass

    assert places(broken_off, 1 + (taken and step > 1), step) >= 20
    JANITOR.pass_over_the_dead(redis_client)
    assert judge(outside, left) == {"charged": len(left)}
