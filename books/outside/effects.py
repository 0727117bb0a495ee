"""The way of one thing out of the house: intended, called, settled; each step committed before the next.

A row is held by a lease like any other, so one message at a time works on it. A row that was called before is never
sent again before the other side was asked whether it has it. Whatever is in doubt and cannot be asked is parked.

    waiting --claim--> running --answer--> done | refused | needs_review, or waiting where it was certainly not sent
    running, its worker gone: the same message, or a janitor once the lease has lapsed, asks and goes on
    running, wanted no more, and the other side has it not: not_sent, until somebody intends it again

Not guaranteed: that a worker which lost its lease between two statements sends nothing more. What it then sends has the
same key, which the other side knows; a mail has no such friend, but it is parked by then, and never repeated. Nor that
what is withdrawn once its call is noted stays in the house: that call goes out. Nor that what the other side says it
does not have never reaches it: an earlier call whose worker died may still be on its way, and is not asked about again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol

from dramatiq import Message
from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from books.leasing import Hold, lease_time, uses_up_no_attempt
from books.models import EffectKind, EffectStatus, OutsideEffect
from books.outside.answers import Conflicting, NotTaken, Receipt, Refused, Unclear
from fleet import wire
from fleet.actor import current_delivery
from fleet.errors import FleetError, RetryLater
from fleet.logs import get_logger
from fleet.sentry import report_issue
from fleet.storage import leases, session
from fleet.storage.leases import RUNNING

log = get_logger(__name__)

SENDS = (
    2  # of one attempt: where the answer broke off and the other side says that it has nothing, it is sent once more
)


class NotWanted(FleetError):
    """Raised when nobody wants a thing any more that was about to be sent; says why."""


class Kind(Protocol):
    """How a kind of thing is sent, asked for, and what follows for the row that wanted it."""

    name: EffectKind
    askable: bool
    gives_up: bool
    """Whether the last failure ends it; else it waits for the next pass over what is due."""

    def ready(self, effect: OutsideEffect) -> AbstractContextManager[Callable[[], Receipt]]:
        """What can be done without the other side having it; then the call that makes it have it.

        Raises `NotTaken`, `RetryLater`, `Refused`; the call `Unclear`, too.
        """

    def ask(self, effect: OutsideEffect) -> Receipt | None:
        """Whether the other side has it. Raises `Unclear` if there is no answer, `Refused` if it decided against."""

    def unwanted(self, s: Session, effect: OutsideEffect) -> str | None:
        """Why nobody wants it any more ("its invoice is draft"); None if it is wanted.

        Locks the row that wanted it until the transaction ends, after the effect's own, so that whoever is just
        withdrawing it is waited for. Not guaranteed: that it is still wanted after that.
        """

    def moved(self, s: Session, effect: OutsideEffect, status: EffectStatus, outcome: str) -> None:
        """Move the row that wanted it, in the transaction that moves the effect."""

    def message(self, effect: OutsideEffect) -> tuple[str, tuple[Any, ...]]:
        """The actor and arguments that go on with a waiting one."""


def intend(
    s: Session, kind: EffectKind, subject: str, *, key: str, body: dict[str, Any], token: str
) -> Hold[OutsideEffect] | None:
    """Write down a thing that is to be done, once, and hold it for the message `token`, in the caller's transaction.

    None if the other side has it or decided against it, a person has to find out, or somebody else is at it. What ended
    as not sent goes its way anew. Key and body of a thing that was intended before stay as they were.
    """
    row_id = write_down(s, kind, subject, key=key, body=body)
    return hold(s, row_id, token, claimable=(EffectStatus.WAITING, EffectStatus.NOT_SENT))


def write_down(s: Session, kind: EffectKind, subject: str, *, key: str, body: dict[str, Any]) -> int:
    """Write down a thing that is to be done, once, for whoever holds it first; returns its row id."""
    thing = {"kind": kind, "subject": subject}
    intent = insert(OutsideEffect).values(**thing, key=key, body=body, status=EffectStatus.WAITING)
    s.execute(intent.on_conflict_do_nothing(index_elements=list(thing)))
    row_id = _id(s, kind, subject)
    assert row_id is not None  # rows are never deleted
    return row_id


def found(kind: EffectKind, subject: str, token: str) -> Hold[OutsideEffect] | None:
    """Hold a thing that was intended before; None if there is none, it has ended, or somebody else is at it."""
    with session() as s:
        row_id = _id(s, kind, subject)
        return None if row_id is None else hold(s, row_id, token)


def hold(
    s: Session, row_id: int | None, token: str, *, claimable: Sequence[str] = (EffectStatus.WAITING,)
) -> Hold[OutsideEffect] | None:
    """Hold a thing by its row id, in the caller's transaction."""
    lease, delivery = lease_time(), current_delivery()
    row = leases.claim(s, OutsideEffect, row_id, message=token, token=delivery, lease=lease, claimable=claimable)
    return None if row is None else Hold(OutsideEffect, row, token, delivery)


def _id(s: Session, kind: EffectKind, subject: str) -> int | None:
    thing = (OutsideEffect.kind == kind) & (OutsideEffect.subject == subject)
    return s.scalars(select(OutsideEffect.id).where(thing)).one_or_none()


def carry_out(kind: Kind, held: Hold[OutsideEffect], *, park: bool, give_up: bool) -> EffectStatus:
    """Have a held thing done, or find out that it was, and say what became of it.

    `park`: what cannot be told now is left to a person; else the attempt raises and the next one asks again. `give_up`:
    what was certainly not sent ends as `not_sent`, if its kind gives up; so does, whatever its kind, what nobody wants
    any more and the other side does not have. Raises `NotTaken`, `RetryLater`, `Unclear`, `LeaseLost`.
    """
    try:
        receipt = _attempt(kind, held)
    except Refused as error:
        return settle(kind, held, EffectStatus.REFUSED, f"refused: {error}")
    except NotWanted as error:
        return settle(kind, held, EffectStatus.NOT_SENT, f"not sent: {error}")
    except (NotTaken, RetryLater) as error:
        if give_up and kind.gives_up and not uses_up_no_attempt(error):
            return settle(kind, held, EffectStatus.NOT_SENT, f"given up: {error}")
        # Where it can be asked, the next attempt asks first all the same: an earlier call may still be on its way.
        called_at = held.row.called_at if kind.askable else None
        settle(kind, held, EffectStatus.WAITING, f"not sent: {error}", called_at=called_at)
        raise
    except Unclear as error:
        if not park and kind.askable and not isinstance(error, Conflicting):
            raise
        return settle(kind, held, EffectStatus.NEEDS_REVIEW, f"find out whether it is there: {error}")
    return settle(kind, held, EffectStatus.DONE, "done", receipt=receipt.id)


def _attempt(kind: Kind, held: Hold[OutsideEffect]) -> Receipt:
    effect = held.row
    receipt = kind.ask(effect) if effect.called_at is not None else None
    unclear: Unclear | None = None
    for _ in range(SENDS):
        if receipt is not None:
            return receipt
        with ExitStack() as opened:
            send = _opened(kind, effect, opened)
            try:
                _note_called(kind, held)
            except NotWanted:
                if unclear is None or unclear.answered:
                    raise
                raise unclear from None  # that call may still be on its way: the next to hold it asks again
            try:
                return send()
            except Unclear as error:
                if not kind.askable or isinstance(error, Conflicting):
                    raise
                unclear = error
        receipt = kind.ask(effect)
    if receipt is not None:
        return receipt
    assert unclear is not None
    if unclear.answered:
        raise NotTaken(f"{unclear}; asked, it says that it is not there") from unclear
    raise unclear


def _opened(kind: Kind, effect: OutsideEffect, opened: ExitStack) -> Callable[[], Receipt]:
    """The call, made ready; whatever fails on the way there is `NotTaken`, for certain."""
    try:
        return opened.enter_context(kind.ready(effect))
    except (NotTaken, RetryLater):
        raise
    except Exception as error:
        raise NotTaken(f"{effect.subject}: {type(error).__name__} before anything was sent") from error


def _note_called(kind: Kind, held: Hold[OutsideEffect]) -> None:
    """From here on nobody may send it without having asked.

    Raises `NotWanted`, and notes nothing, if whoever wanted it has withdrawn it. Not guaranteed: that nobody withdraws
    it after that, while the call is on its way; then it is sent, settled as taken, and the withdrawal stands beside it.
    """
    called = update(OutsideEffect).where(OutsideEffect.id == held.row.id).values(called_at=func.now())
    with session() as s:
        held.renew(s)
        if (reason := kind.unwanted(s, held.row)) is not None:
            raise NotWanted(reason)
        held.row.called_at = s.scalars(called.returning(OutsideEffect.called_at)).one()


def settle(kind: Kind, held: Hold[OutsideEffect], status: EffectStatus, outcome: str, **values: Any) -> EffectStatus:
    """End a held thing, or hand it back, together with the row that wanted it."""
    with session() as s:
        held.finish(status, outcome, s, **values)
        kind.moved(s, held.row, status, outcome)
        if status is EffectStatus.NEEDS_REVIEW:
            # Before the commit: an issue about a row that was not parked after all is closed with a look; a parked row
            # that nobody hears of is not.
            _tell(held.row)
    say = log.warning if status is EffectStatus.NEEDS_REVIEW else log.info
    say("outside_effect", kind=kind.name, subject=held.row.subject, status=status, attempts=held.row.attempts)
    return status


def _tell(effect: OutsideEffect) -> None:
    """One issue a kind, an event a thing; ids only."""
    report_issue(
        f"A {effect.kind} needs review: nobody can tell whether the other side has it",
        fingerprint=["needs-review", effect.kind],
        kind=effect.kind,
        subject=effect.subject,
        effect=str(effect.id),
    )


def let_go(message: Message[Any], reason: str) -> None:
    """Of a message whose job was cut off: what it held is free at once, for a janitor to find out about."""
    held = (OutsideEffect.status == RUNNING) & (OutsideEffect.lease_message == message.message_id)
    if delivery := message.options.get(wire.DELIVERY):  # its next delivery may be at it by now
        held &= OutsideEffect.lease_token == delivery
    with session() as s:
        free = update(OutsideEffect).where(held).values(lease_until=func.now(), outcome=reason)
        subjects = s.scalars(free.returning(OutsideEffect.subject)).all()
    if subjects:
        log.info("outside_effects_let_go", subjects=subjects, reason=reason)
