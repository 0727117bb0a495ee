"""One chunk of a backlog: some rows, one at a time, each taken when its turn comes and never twice at once.

A chunk ends with its number of rows, with an empty backlog, after two minutes (so that what a person just uploaded need
not wait for longer), with half of its soft budget (so that a row which then times out is itself to blame), and when
nobody answers: a model that is parked, away, or without a place for batch is not asked for the next row either. Its
rows wait in the backlog; the balancer begins the chain again in a minute, and hears that the chunk ended early. It
also ends where its row is no longer its own: its message was delivered again while this worker stood still, and that
delivery goes on.

A bad row never ends a chunk. It is tried again at its customer's next turn, and after `MOST_TRIES` it is parked: it
ends `failed`, and says why. A chunk that is killed held one row: its message, which comes again, takes that row first;
where the message is gone too, the janitor puts the row back once its lease has lapsed.

Not guaranteed: that a chunk does as many rows as it may. Where PostgreSQL or Redis is gone it raises, and the
rows that were done stay done; the one at which Redis went has lost no try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, TypeVar

import redis
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from books import turns
from books.leasing import Hold, LeaseLost, Then, take
from books.model import ModelUnavailable
from books.models import AgentRun, Attachment
from fleet import deadline, parking
from fleet.app import process_broker
from fleet.clock import clock
from fleet.elastic import Did
from fleet.errors import RetryLater
from fleet.logs import get_logger
from fleet.quota import NoPlace
from fleet.storage import session
from fleet.storage.leases import RUNNING
from fleet.sweep import sweep

log = get_logger(__name__)

Row = TypeVar("Row", Attachment, AgentRun)
T = TypeVar("T")

LASTS = timedelta(minutes=2)  # a night duration, as the model's answers are
MOST_TRIES = 3  # what a model answered wrongly three times, asked twice each, it will answer wrongly


def passes(error: Exception) -> bool:
    """Whether a failure is not its row's: the model is parked, busy with people, or away, or Redis is.

    A connection to PostgreSQL that broke may be the row's doing, at each of its tries.
    """
    return isinstance(error, (RetryLater, ModelUnavailable, redis.ConnectionError, redis.TimeoutError))


@dataclass
class Chunk:
    """Up to `size` rows of the backlog `name`; `away` holds why it was ended early, if it was."""

    name: str
    size: int
    away: list[Exception] = field(default_factory=list, init=False)
    _enough: bool = field(default=False, init=False)

    @property
    def early(self) -> bool:
        """Whether it ended since nobody answers; where its row went to another delivery, that one goes on."""
        return any(map(passes, self.away))

    @property
    def lost(self) -> bool:
        """Whether it ended since its row went to another delivery."""
        return bool(self.away) and not self.early

    def do(self, next_row: Callable[[], T | None], work: Callable[[T], object]) -> Did:
        """Take and do rows; says whether another chunk has anything to do now, and how many rows this one did.

        Raises what `sweep` raises.
        """

        def guarded(row: T) -> None:
            try:
                work(row)
            except Exception as error:
                # Another delivery of the message has the row, and what this one would take next are that one's rows.
                if passes(error) or isinstance(error, LeaseLost):
                    self.away.append(error)
                raise

        swept = sweep(self.name, self._rows(next_row), guarded)
        for error in self.away:
            _park(error)
            log.info("chunk_ended_early", backlog=self.name, because=f"{error}")
        return Did(self._enough and not self.away, swept.processed - len(self.away), self.early, self.lost)

    def _rows(self, next_row: Callable[[], T | None]) -> Iterator[T]:
        began, budget = clock.now(), deadline.remaining()
        for number in range(self.size):
            left = deadline.remaining()
            late = budget is not None and left is not None and left < budget / 2
            if number and (late or clock.now() - began > LASTS):
                break
            row = next_row()
            if row is None:
                return
            yield row
            if self.away:
                return
        self._enough = True


def _park(error: Exception) -> None:
    """As the middleware would, had the job failed with it: whoever shares the key waits as well.

    A place that batch did not get parks nothing: the next one asks the quota, which knows. Nor does a parked key.
    """
    if isinstance(error, RetryLater) and error.key is not None and not isinstance(error, (NoPlace, parking.Parked)):
        parking.park(process_broker(), error.key, error.after)


@dataclass(frozen=True)
class Backlog(Generic[Row]):
    """Rows with a lease that wait in `queued` for a chunk; `waits` says which, as their index (customer, id) does."""

    name: str
    model: type[Row]
    waits: ColumnElement[bool]
    then: Then | None = None

    def next_row(self, message: str) -> Hold[Row] | None:
        """Take the row whose turn it is, for a message; first what this very message held when its worker died."""
        for row_id in self._own(message):
            hold = self._take(row_id, message)
            if hold is not None:
                return hold
        while (row := turns.step(self.name, self._behind)) is not None:
            hold = self._take(row, message)  # None if a message of its own came first
            if hold is not None:
                return hold
        return None

    def count(self) -> int:
        """How many rows wait; one count over the index."""
        with session() as s:
            return s.scalar(select(func.count()).select_from(self.model).where(self.waits)) or 0

    def _own(self, message: str) -> Sequence[int]:
        own = (self.model.lease_message == message) & (self.model.status == RUNNING)
        with session() as s:
            return s.scalars(select(self.model.id).where(own)).all()

    def _take(self, row_id: int, message: str) -> Hold[Row] | None:
        return take(self.model, row_id, message=message, claimable=("queued",), then=self.then)

    def _behind(self, s: Session, customer: str | None) -> tuple[str, int] | None:
        model = self.model
        first = select(model.customer, model.id).where(self.waits).order_by(model.customer, model.id).limit(1)
        row = s.execute(first if customer is None else first.where(model.customer > customer)).one_or_none()
        return (row.customer, row.id) if row is not None else None
