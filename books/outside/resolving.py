"""What a janitor does with things whose worker is gone, or that wait and were forgotten: it asks, and goes on.

The other side has it: done. It has not: it is sent again under the same key, if it is still wanted; else it ends as
not sent. Nobody says, or it is a mail: parked for a person, with an issue, and not repeated. A thing that a live worker
holds is not touched.

Not guaranteed: all of them in one pass; it ends with its budget, oldest first, and the next one goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import ColumnElement, Interval, func, or_, select, type_coerce

from books.models import EffectKind, EffectStatus, OutsideEffect
from books.outside.effects import Kind, carry_out, hold
from fleet import deadline
from fleet.clock import clock
from fleet.janitor import Measured, Stuck
from fleet.logs import get_logger
from fleet.storage import session
from fleet.storage.keyset import Keyset, Streamed
from fleet.storage.leases import RUNNING

log = get_logger(__name__)

WAITS_AT_MOST = timedelta(minutes=30)  # real time; its message would have come by then
MOST_ATTEMPTS = 5
ROWS_A_PASS = 500


@dataclass
class Resolved:
    """What a pass found and did; `oldest` is the age of the oldest row that it worked on."""

    settled: int = 0
    parked: int = 0
    failed: int = 0
    skipped_live: int = 0
    oldest: timedelta = timedelta(0)


def resolve(token: str) -> Resolved:
    """One pass over all kinds.

    Raises `DeadlineExceeded`.
    """
    kinds = {kind.name: kind for kind in all_kinds()}
    done = Resolved()
    for row_id, name, age in _lapsed(list(kinds)):
        deadline.check()
        try:
            _resolve(kinds[EffectKind(name)], row_id, age, token, done)
        except Exception as error:
            done.failed += 1
            log.warning("outside_effect_not_resolved", kind=name, effect=row_id, error=repr(error))
    return done


def all_kinds() -> list[Kind]:
    """Every kind there is; their modules import this one."""
    from books.charging import Charge
    from books.invoicing import InvoiceMail
    from books.submitting import Filing
    from books.summaries import SummaryMail

    return [Filing(), Charge(), InvoiceMail(), SummaryMail()]


class Unresolved:
    """What `resolve` works on, as a chore of a janitor; `token` is the message that then holds a row."""

    def __init__(self, token: str) -> None:
        self._token, self._kinds = token, {kind.name: kind for kind in all_kinds()}

    def measure(self) -> Measured:
        """Raises what the database raises."""
        stuck = _stuck(list(self._kinds))
        live = (OutsideEffect.status == RUNNING) & ~stuck
        counted = select(
            func.count(), func.count().filter(stuck), func.count().filter(live), func.max(_age()).filter(stuck)
        )
        on_their_way = OutsideEffect.status.in_((RUNNING, EffectStatus.WAITING))
        with session() as s:
            scanned, stuck_rows, live_rows, oldest = s.execute(counted.where(on_their_way)).one()
        return Measured(scanned, stuck_rows, live_rows, oldest)

    def find(self) -> Iterator[Stuck]:
        """Each page is read in a transaction of its own."""
        rows = Keyset(select(OutsideEffect).where(_stuck(list(self._kinds))), by=OutsideEffect.id)
        for effect in Streamed(rows):
            age = clock.real_now() - (effect.called_at or effect.intended_at)
            called = "the other side is asked; sent if it has it not and it is still wanted, parked if nobody can tell"
            plan = called if effect.called_at is not None else "sent if it is still wanted: it never was"
            yield Stuck((effect.id, effect.kind, age), f"{effect.kind} of {effect.subject}", age, plan)

    def mend(self, stuck: Stuck) -> int:
        """Raises what says that it could be neither done nor parked now; the row then waits, or is held no longer."""
        row_id, name, age = stuck.key
        done = Resolved()
        _resolve(self._kinds[EffectKind(name)], row_id, age, self._token, done)
        return done.settled + done.parked


def _stuck(kinds: Sequence[EffectKind]) -> ColumnElement[bool]:
    """Rows whose lease has lapsed; and those that wait too long for a message; charges and invoices wait for a slot."""
    lapsed = (OutsideEffect.status == RUNNING) & (OutsideEffect.lease_until < func.now())
    long_ago = func.coalesce(OutsideEffect.finished_at, OutsideEffect.intended_at) < func.now() - WAITS_AT_MOST
    by_message = OutsideEffect.kind.in_((EffectKind.FILING, EffectKind.SUMMARY))
    forgotten = by_message & (OutsideEffect.status == EffectStatus.WAITING) & long_ago
    return or_(lapsed, forgotten) & OutsideEffect.kind.in_(kinds)


def _age() -> ColumnElement[timedelta]:
    return type_coerce(func.now() - func.coalesce(OutsideEffect.called_at, OutsideEffect.intended_at), Interval)


def _lapsed(kinds: Sequence[EffectKind]) -> Sequence[tuple[int, str, timedelta]]:
    rows = select(OutsideEffect.id, OutsideEffect.kind, _age()).where(_stuck(kinds))
    with session() as s:
        chosen = s.execute(rows.order_by(OutsideEffect.id).limit(ROWS_A_PASS)).all()
    return [(row_id, name, age) for row_id, name, age in chosen]


def _resolve(kind: Kind, row_id: int, age: timedelta, token: str, done: Resolved) -> None:
    with session() as s:
        held = hold(s, row_id, token)
    if held is None:
        done.skipped_live += 1
        return
    done.oldest = max(done.oldest, age)
    status = carry_out(kind, held, park=True, give_up=held.row.attempts >= MOST_ATTEMPTS)
    if status is EffectStatus.NEEDS_REVIEW:
        done.parked += 1
    else:
        done.settled += 1
