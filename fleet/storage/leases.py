"""Rows that work passes through: a status, and a lease that says whose they are and until when.

A lease has two names on it. `lease_message` is the message that the row is worked on for: a message is delivered again
only after its former delivery was reaped, so it takes its row over at once; any other message waits for the lease to
lapse. `lease_token` is that one delivery: every later write is conditional on it, so the late write of a worker that
lost its row, be it to the second delivery of its own message, changes nothing, returns False and is counted
(`fleet_stale_writes`). Leases are real time, by the database's clock.

Not guaranteed: that a row is ended whose worker died and whose message is gone as well; a janitor does that once the
lease has lapsed. A row that says running and has no lease, from before there were any, counts as lapsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, DateTime, and_, func, or_, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from fleet import deadline, metrics

RUNNING = "running"


class Lease:
    """Mixin for such rows. `outcome` is one sentence for a person; `attempts` counts claims."""

    __tablename__: str
    id: Mapped[Any]
    status: Mapped[str] = mapped_column(index=True)
    lease_token: Mapped[str | None]
    lease_message: Mapped[str | None]
    lease_until: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    attempts: Mapped[int] = mapped_column(default=0, server_default="0")
    started_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    finished_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    outcome: Mapped[str | None]


Row = TypeVar("Row", bound=Lease)


def lapsed(model: type[Lease]) -> ColumnElement[bool]:
    """Of a row that says running: nobody holds it any more. It has no lease, or one whose end has passed."""
    return or_(model.lease_until.is_(None), model.lease_until < func.now())


def claim(
    s: Session,
    model: type[Row],
    row_id: object,
    *,
    message: str,
    token: str,
    lease: timedelta,
    claimable: Sequence[str],
    running: str = RUNNING,
    only: ColumnElement[bool] | None = None,
    **values: Any,
) -> Row | None:
    """Take a row for the delivery `token` of a message; None if another message holds it, or it is not claimable.

    A running row is taken when it is the message's own (which then came again) or its lease has lapsed. `only` is one
    more condition on the row, and `values` are written to it in the same statement.
    """
    mine_or_lapsed = or_(model.lease_message == message, lapsed(model))
    free = or_(model.status.in_(claimable), and_(model.status == running, mine_or_lapsed))
    return s.scalars(
        update(model)
        .where(model.id == row_id, free, *([] if only is None else [only]))
        .values(
            status=running,
            lease_token=token,
            lease_message=message,
            lease_until=func.now() + lease,
            attempts=model.attempts + 1,
            started_at=func.now(),
            finished_at=None,
            outcome=None,
            **values,
        )
        .returning(model),
        execution_options={"populate_existing": True},
    ).one_or_none()


def renew(
    s: Session, model: type[Row], row_id: object, *, token: str, lease: timedelta, running: str = RUNNING
) -> bool:
    """Move the end of a held lease to `lease` from now; False if the row is no longer this delivery's."""
    return _change(s, model, row_id, token, running, {"lease_until": func.now() + lease})


def finish(
    s: Session,
    model: type[Row],
    row_id: object,
    *,
    token: str,
    status: str,
    outcome: str | None,
    running: str = RUNNING,
    **values: Any,
) -> bool:
    """End (or hand back) a held row; False, and nothing changed, if the row is no longer this delivery's."""
    return _change(s, model, row_id, token, running, {**_ended(status, outcome), **values})


def finish_lost(
    s: Session,
    model: type[Row],
    row_id: object,
    *,
    message: str,
    status: str,
    outcome: str,
    token: str | None = None,
    running: str = RUNNING,
) -> bool:
    """End the row of a job that was cut off; False if it has ended, or is another message's.

    Without a `token` whichever delivery of the message held it: all of them are over, or `on_lost` was not called; only
    one that a person queued again since it was called loses its row so. With one, only that delivery's; a row that the
    message's next delivery holds is left to it, and that is counted.
    """
    mine = [model.lease_message == message, *([] if token is None else [model.lease_token == token])]
    if _update(s, model, row_id, running, mine, _ended(status, outcome)):
        return True
    if token is not None and _holder(s, model, row_id, running) is not None:
        count_late(model.__tablename__)
    return False


def count_late(table: str) -> None:
    """Count the late write of a worker that had lost its row."""
    with deadline.shielded():  # a metric that is half registered is refused ever after
        metrics.stale_write(table)


def _holder(s: Session, model: type[Row], row_id: object, running: str) -> str | None:
    return s.scalar(select(model.lease_token).where(model.id == row_id, model.status == running))


def _ended(status: str, outcome: str | None) -> dict[str, Any]:
    return {"status": status, "outcome": outcome, "finished_at": func.now(), "lease_until": None}


def _change(s: Session, model: type[Row], row_id: object, token: str, running: str, values: dict[str, Any]) -> bool:
    held = _update(s, model, row_id, running, [model.lease_token == token], values)
    if not held:
        count_late(model.__tablename__)
    return held


def _update(
    s: Session,
    model: type[Row],
    row_id: object,
    running: str,
    mine: Sequence[ColumnElement[bool]],
    values: dict[str, Any],
) -> bool:
    held = update(model).where(model.id == row_id, model.status == running, *mine)
    return s.execute(held.values(**values).returning(model.id)).one_or_none() is not None
