"""Rows that work passes through: a status, and a lease that says whose they are and until when.

A job claims a row with its message id as token, in one conditional UPDATE, and every later write is conditional on
that token: the late write of a worker that lost its row changes nothing and returns False. A message that is
delivered again after a crash takes its row over at once, by the token; anybody else waits for the lease to lapse.
Leases are real time, by the database's clock.

Not guaranteed: that a row whose worker died is ended; a janitor does that once the lease has lapsed. Nor that two
deliveries of one message are told apart: they share the token, so a worker that was wrongly taken for dead can still
write to the row that its message's second delivery works on.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import DateTime, and_, func, or_, update
from sqlalchemy.orm import Mapped, Session, mapped_column

RUNNING = "running"


class Lease:
    """Mixin for such rows. `outcome` is one sentence for a person; `attempts` counts claims."""

    id: Mapped[Any]
    status: Mapped[str] = mapped_column(index=True)
    lease_token: Mapped[str | None]
    lease_until: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    attempts: Mapped[int] = mapped_column(default=0, server_default="0")
    started_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    finished_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    outcome: Mapped[str | None]


Row = TypeVar("Row", bound=Lease)


def claim(
    s: Session,
    model: type[Row],
    row_id: object,
    *,
    token: str,
    lease: timedelta,
    claimable: Sequence[str],
    running: str = RUNNING,
) -> Row | None:
    """Take a row for the message `token`; None if another message holds it, or its status is not claimable.

    A running row is taken when the token is its own (the message came again) or its lease has lapsed.
    """
    return s.scalars(
        update(model)
        .where(
            model.id == row_id,
            or_(
                model.status.in_(claimable),
                and_(model.status == running, or_(model.lease_token == token, model.lease_until < func.now())),
            ),
        )
        .values(
            status=running,
            lease_token=token,
            lease_until=func.now() + lease,
            attempts=model.attempts + 1,
            started_at=func.now(),
            finished_at=None,
            outcome=None,
        )
        .returning(model),
        execution_options={"populate_existing": True},
    ).one_or_none()


def renew(
    s: Session, model: type[Row], row_id: object, *, token: str, lease: timedelta, running: str = RUNNING
) -> bool:
    """Move the end of a held lease to `lease` from now; False if the row is no longer this message's."""
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
    """End (or hand back) a held row; False, and nothing changed, if the row is no longer this message's."""
    ended = {"status": status, "outcome": outcome, "finished_at": func.now(), "lease_until": None, **values}
    return _change(s, model, row_id, token, running, ended)


def _change(s: Session, model: type[Row], row_id: object, token: str, running: str, values: dict[str, Any]) -> bool:
    statement = (
        update(model)
        .where(model.id == row_id, model.lease_token == token, model.status == running)
        .values(**values)
        .returning(model.id)
    )
    return s.execute(statement).one_or_none() is not None
