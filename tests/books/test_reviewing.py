"""What a person does about things of which nobody can tell whether they arrived, by the runbook's command."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from dramatiq import Message
from sqlalchemy import delete, func, select, update
from typer.testing import CliRunner

from books import charging, invoicing, outside
from books.models import (
    EffectKind,
    EffectStatus,
    Invoice,
    InvoiceStatus,
    OutsideEffect,
    Subscription,
    SubscriptionStatus,
)
from books.outside import Unclear, effects, reviewing
from books.outside.reviewing import NotInReview
from books.review import cli
from fleet.broker import keys
from fleet.clock import clock
from fleet.storage import session
from tests.books.gateway import SandboxGateway
from tests.books.killed import places
from tests.books.relayed import relayed
from tests.books.test_charging import now, reference, subscribe
from tests.books.test_invoicing import invoice


@pytest.fixture
def till(migrated: object, gateway: SandboxGateway) -> SandboxGateway:
    with session() as s:
        for model in (OutsideEffect, Subscription, Invoice):
            s.execute(delete(model))
    return gateway


def park(till: SandboxGateway, fault: str) -> tuple[tuple[int, str], int]:
    """A charge that met this fault, and an authority that then answered nothing; with its effect's id."""
    subscription = subscribe()
    till.script(send=[fault], ask=["away", "away"])
    with pytest.raises(Unclear):
        charging.charge(*subscription, token="m1")
    with session() as s:
        s.execute(update(OutsideEffect).values(lease_until=func.now() - timedelta(seconds=1)))
    assert outside.resolve(token="janitor").parked == 1
    with session() as s:
        return subscription, s.scalars(select(OutsideEffect.id).order_by(OutsideEffect.id.desc())).first() or 0


def say(*words: object) -> str:
    told = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)
    assert told.exit_code == 0
    return told.output


def test_it_is_listed_with_its_key_and_why(till: SandboxGateway) -> None:
    subscription, effect = park(till, "silent")
    told = say("list")
    assert f"{effect}  charge of {reference(subscription)}  key charge-{subscription[0]}-{subscription[1]}" in told
    assert "find out whether it is there" in told
    assert "1900" not in told
    assert "pm_1" not in told


@pytest.mark.parametrize(("fault", "there"), [("silent", True), ("dropped", False)])
def test_asking_settles_what_the_other_side_knows_and_sends_nothing(
    till: SandboxGateway, fault: str, there: bool
) -> None:
    subscription, _ = park(till, fault)
    told = say("ask")
    assert ("it is done" in told) == there
    assert ("not there" in told) != there
    assert now(subscription[0]).status == (SubscriptionStatus.ACTIVE if there else SubscriptionStatus.NEEDS_REVIEW)
    assert till.taken()[reference(subscription)] == there
    assert len(till.lines(reference=reference(subscription))) == 1


def test_again_sends_under_the_same_key_what_is_not_there(
    till: SandboxGateway, environment: Any, redis_client: Any
) -> None:
    subscription, effect = park(till, "dropped")
    assert "charge_subscription was sent" in say("again", effect)
    (body,) = redis_client.hvals(keys.bodies(environment.namespace, "charging"))
    assert Message.decode(body).args == subscription
    charging.charge(*subscription, token="m2")
    assert till.taken()[reference(subscription)] == 1
    assert len({line["key"] for line in till.lines(reference=reference(subscription))}) == 1


def test_again_does_not_send_what_turns_out_to_be_there(till: SandboxGateway) -> None:
    subscription, effect = park(till, "silent")
    assert "it is done" in say("again", effect)
    assert till.taken()[reference(subscription)] == 1
    assert now(subscription[0]).next_period.isoformat() > subscription[1]


def test_again_sends_nothing_while_nobody_answers(till: SandboxGateway) -> None:
    subscription, effect = park(till, "silent")
    till.script(ask=["away"])
    assert "no answer" in say("again", effect)
    assert now(subscription[0]).status == SubscriptionStatus.NEEDS_REVIEW


@pytest.mark.parametrize(("word", "becomes"), [("done", InvoiceStatus.SENT), ("again", InvoiceStatus.DUE)])
def test_of_a_mail_a_person_is_trusted(till: SandboxGateway, word: str, becomes: InvoiceStatus) -> None:
    row = invoice(InvoiceStatus.DUE, 14)
    with session() as s:
        held = outside.intend(s, EffectKind.MAIL, f"invoice {row}", key="k", body={"message_id": "<m@x>"}, token="m1")
        assert held is not None
        held.row.called_at = clock.now()
    effects.settle(invoicing.InvoiceMail(), held, EffectStatus.NEEDS_REVIEW, "find out")
    say(word, held.row.id)
    with session() as s:
        assert s.get_one(Invoice, row).status == becomes
        assert (s.get_one(OutsideEffect, held.row.id).called_at is None) == (word == "again")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_again_that_is_killed_at_any_place_has_sent_nothing_or_sends_its_message_after_all(
    till: SandboxGateway, environment: Any, redis_client: Any
) -> None:
    def parked(_: int) -> Callable[[], object]:
        row = invoice(InvoiceStatus.DUE, 14)
        with session() as s:
            mail = outside.intend(s, EffectKind.MAIL, f"invoice {row}", key=f"k{row}", body={}, token="m1")
            assert mail is not None
        effects.settle(invoicing.InvoiceMail(), mail, EffectStatus.NEEDS_REVIEW, "find out")
        return lambda: reviewing.again(mail.row.id)

    killed = places(parked)
    with session() as s:
        waiting = len(s.scalars(select(OutsideEffect.id).where(OutsideEffect.status == EffectStatus.WAITING)).all())
    relayed()
    sent = redis_client.hlen(keys.bodies(environment.namespace, "housekeeping"))
    assert killed >= 12
    assert 5 < waiting == sent


def test_two_who_say_again_send_one_message(
    till: SandboxGateway, environment: Any, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, effect = park(till, "dropped")
    ask = reviewing.ask

    def slowly(asked: OutsideEffect) -> str:
        monkeypatch.setattr(reviewing, "ask", ask)
        assert "was sent" in reviewing.again(effect)  # the other one, meanwhile
        return ask(asked)

    monkeypatch.setattr(reviewing, "ask", slowly)
    assert "nothing was sent" in reviewing.again(effect)
    assert redis_client.hlen(keys.bodies(environment.namespace, "charging")) == 1


def test_what_is_decided_is_not_decided_again(till: SandboxGateway) -> None:
    _, effect = park(till, "silent")
    reviewing.done(effect)
    for decide in (reviewing.done, reviewing.again):
        with pytest.raises(NotInReview, match="is done"):
            decide(effect)


def test_a_parked_thing_is_one_event_of_one_issue_and_holds_no_amount(
    till: SandboxGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sentry_sdk

    sent: list[Any] = []
    sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", default_integrations=False, before_send=lambda e, _: sent.append(e))
    try:
        subscription, effect = park(till, "silent")
        for _ in range(2):
            outside.resolve(token="janitor")
        park(till, "silent")
    finally:
        sentry_sdk.get_client().close(timeout=1)
        sentry_sdk.get_global_scope().set_client(None)
    assert [event["fingerprint"] for event in sent] == [["needs-review", "charge"]] * 2
    assert sent[0]["tags"] == {"kind": "charge", "subject": reference(subscription), "effect": str(effect)}
    assert "1900" not in json.dumps(sent[0], default=str)
    assert "pm_1" not in json.dumps(sent[0], default=str)
