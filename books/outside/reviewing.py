"""What a person does about things of which nobody can tell: ask again, say that it is there, or have it sent again.

Not guaranteed: that a person is right. `again` on a thing that can be asked about asks first, and sends only what the
other side says it does not have; on a mail it trusts whoever looked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from sqlalchemy import select, update

from books.models import EffectKind, EffectStatus, OutsideEffect
from books.outside.answers import Receipt, Refused, Unclear
from books.outside.effects import Kind
from books.outside.resolving import all_kinds
from fleet.actor import FleetActor
from fleet.app import process_broker
from fleet.errors import FleetError
from fleet.storage import session


class NotInReview(FleetError):
    """Raised when a person decides about a thing that does not wait for one; says what it is instead."""


def parked() -> Sequence[OutsideEffect]:
    """Everything that waits for a person, oldest first."""
    waiting = OutsideEffect.status == EffectStatus.NEEDS_REVIEW
    with session() as s:
        return s.scalars(select(OutsideEffect).where(waiting).order_by(OutsideEffect.id)).all()


def ask(effect: OutsideEffect) -> str:
    """Ask the other side about a thing, and settle it if it has it or decided against it; returns what it said."""
    kind = _kind(effect)
    try:
        receipt = kind.ask(effect)
    except Refused as error:
        _decide(kind, effect, EffectStatus.REFUSED, f"refused: {error}")
        return f"decided against: {error}"
    except Unclear as error:
        return f"no answer: {error}"
    if receipt is None:
        return "not there; `again` would send it"
    _decide(kind, effect, EffectStatus.DONE, "done; a person asked", receipt)
    return "there; it is done"


def done(effect_id: int) -> None:
    """A person found it at the other side.

    Raises `NotInReview`.
    """
    effect = _parked(effect_id)
    _decide(_kind(effect), effect, EffectStatus.DONE, "done; a person found it at the other side")


def again(effect_id: int) -> str:
    """Have it sent again under its key, where the other side can be asked only if it says that it has it not.

    Raises `NotInReview`.
    """
    effect = _parked(effect_id)
    kind = _kind(effect)
    if kind.askable:
        said = ask(effect)
        if not said.startswith("not there"):
            return said
    if not _decide(kind, effect, EffectStatus.WAITING, "a person had it sent again"):
        return "somebody else decided it meanwhile; nothing was sent"
    return f"{kind.message(effect)[0]} was sent"


def _kind(effect: OutsideEffect) -> Kind:
    return next(kind for kind in all_kinds() if kind.name == EffectKind(effect.kind))


def _parked(effect_id: int) -> OutsideEffect:
    with session() as s:
        effect = s.get(OutsideEffect, effect_id)
    if effect is None or effect.status != EffectStatus.NEEDS_REVIEW:
        found = "does not exist" if effect is None else f"is {effect.status}"
        raise NotInReview(f"{effect_id} {found}, and only what needs review can be decided; list shows what does")
    return effect


def _decide(
    kind: Kind, effect: OutsideEffect, status: EffectStatus, outcome: str, receipt: Receipt | None = None
) -> bool:
    """Move it and the row that wanted it, and send the message of one that then waits; False if it needs no review."""
    still = (OutsideEffect.id == effect.id) & (OutsideEffect.status == EffectStatus.NEEDS_REVIEW)
    # A mail that is sent again must not look as if it had been called: it would be parked at once.
    called_at = None if status is EffectStatus.WAITING and not kind.askable else effect.called_at
    values = {"status": status, "outcome": outcome, "called_at": called_at, "receipt": receipt.id if receipt else None}
    with session() as s:
        moved = update(OutsideEffect).where(still).values(**values).returning(OutsideEffect.id)
        if s.scalars(moved).one_or_none() is None:
            return False
        kind.moved(s, effect, status, outcome)
        if status is EffectStatus.WAITING:
            actor, arguments = kind.message(effect)
            cast("FleetActor[..., Any]", process_broker().get_actor(actor)).send_on_commit(s, *arguments)
    return True
