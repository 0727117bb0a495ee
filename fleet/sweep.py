"""Go through rows one at a time: a bad row means go on, a deadline means leave.

`sweep(name, rows, work)` takes any rows, and `work` opens its own transactions; a query too large for a list is
`Streamed(Keyset(...))`. Over a `Keyset` itself `work(session, row)` works in a savepoint of its row's own: a row that
fails takes back what it wrote and nothing else. Rows are committed by the page, or by the second where they are slow.
Either way the memory is that of a page.

A server that is gone is no bad row: the sweep ends with the truth, that row is not counted, and what was raised goes on
to the job, whose next try takes the rest. One connection that broke costs the same.

It publishes how far it is (`fleet.progress`), so that a deadline says "timed out after 340 of 1772"; rows without a
length make that "after 340 rows". Rows that were done before a deadline stay.

Not guaranteed: that a row is worked on once. Rows that were not committed come again, in a process that was killed up
to a second's worth. On failure of a row a WARNING names it; the sweep ends with one line that counts what is kept, at
WARNING when any row failed or the sweep was cut short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar, overload

from sqlalchemy.orm import Session, SessionTransaction

from fleet import deadline, flow, metrics, progress
from fleet.clock import clock
from fleet.errors import FleetError
from fleet.gone import server_gone
from fleet.logs import get_logger
from fleet.storage import session
from fleet.storage.keyset import Keyset

log = get_logger(__name__)

T = TypeVar("T")

_COMMIT_AFTER_SECONDS = 1.0


@dataclass(frozen=True)
class SweepResult:
    """How far a sweep came; `verdict` is `cut` when something other than a bad row ended it."""

    processed: int
    failed: int
    verdict: Literal["done", "cut"]


class SavepointLost(FleetError):
    """Raised when what a row wrote could not be taken back by itself; its page was rolled back and comes again."""


@overload
def sweep(
    name: str, rows: Keyset[T], work: Callable[[Session, T], object], *, key: Callable[[T], Any] = ...
) -> SweepResult: ...
@overload
def sweep(
    name: str, rows: Iterable[T], work: Callable[[T], object], *, key: Callable[[T], Any] = ...
) -> SweepResult: ...


def sweep(name: str, rows: Any, work: Callable[..., object], *, key: Callable[[Any], Any] = repr) -> SweepResult:
    """Call `work` for each row and count.

    Raises whatever is not an `Exception` (`DeadlineExceeded` before all), whatever reading the rows raises, and what a
    server that is gone raises in a row, after the summary line is logged.
    """
    tally = _Tally(name, key)
    try:
        if isinstance(rows, Keyset):
            tally.begin(rows.count())
            _in_savepoints(tally, rows, work)
        else:
            tally.begin(len(rows) if isinstance(rows, Sized) else None)
            for row in rows:
                deadline.check()
                tally.count(row, partial(work, row))
                tally.keep()
        tally.verdict = "done"
    finally:
        tally.say()
    return SweepResult(tally.done + tally.failed, tally.failed, tally.verdict)


class _Tally:
    """Counts rows; those of an open transaction are `open` until it is committed."""

    def __init__(self, name: str, key: Callable[[Any], Any]) -> None:
        self._name, self._key = name, key
        self.done = self.failed = self.open = 0
        self.verdict: Literal["done", "cut"] = "cut"

    def begin(self, of: int | None) -> None:
        self._of, self._unit = of, "" if of is not None else "rows"
        self._publish()

    def count(self, row: Any, work: Callable[[], object]) -> None:
        """Do a row's work and count it; raises what ends the sweep."""
        try:
            work()
            self.open += 1
        except Exception as error:
            if isinstance(error, SavepointLost) or server_gone(error):
                raise
            self.failed += 1
            log.warning("sweep_row_failed", sweep=self._name, row=str(self._key(row)), error=repr(error))
        self._publish()

    def keep(self) -> None:
        self.done, self.open = self.done + self.open, 0

    def lose(self) -> None:
        """The open rows were rolled back."""
        self.open = 0
        self._publish()

    def say(self) -> None:
        say = log.info if self.verdict == "done" and not self.failed else log.warning
        say("sweep", sweep=self._name, verdict=self.verdict, processed=self.done + self.failed, failed=self.failed)
        with deadline.shielded():  # the flow's thread is woken by a lock that is written in Python
            flow.note_sweep(self._name, failed=self.failed, cut=self.verdict == "cut")
            metrics.sweep_ended(self._name, self.verdict, self.done, self.failed)

    def _publish(self) -> None:
        progress.publish(self.done + self.open + self.failed, self._of, self._unit)


def _in_savepoints(tally: _Tally, rows: Keyset[T], work: Callable[[Session, T], object]) -> None:
    after: Any = None
    while True:
        with session() as s:
            page = rows.page(s, after)
            if not page:
                return
            began = clock.monotonic()
            try:
                for after, row in page:  # noqa: B007  # the next page begins behind it
                    deadline.check()
                    tally.count(row, partial(_in_savepoint, s, row, work))
                    if clock.monotonic() - began > _COMMIT_AFTER_SECONDS and not rows.locked:
                        _commit(s, tally)
                        began = clock.monotonic()
            except BaseException as error:
                _keep_what_is_done(s, tally, error)
                raise
            _commit(s, tally)


def _commit(s: Session, tally: _Tally) -> None:
    with deadline.shielded():
        try:
            s.commit()
        except BaseException:
            tally.lose()
            raise
        tally.keep()


def _keep_what_is_done(s: Session, tally: _Tally, error: BaseException) -> None:
    """Commit the rows before the one that ended the sweep, unless they went with their connection."""
    if isinstance(error, SavepointLost) or server_gone(error):
        tally.lose()
        return
    try:
        _commit(s, tally)
    except Exception as broken:
        log.warning("sweep_rows_taken_back", error=repr(broken))


def _in_savepoint(s: Session, row: T, work: Callable[[Session, T], object]) -> None:
    with deadline.shielded():
        savepoint = s.begin_nested()
    try:
        work(s, row)
        s.flush()
    except BaseException as error:
        with deadline.shielded():
            _roll_back(savepoint, error)
        raise
    with deadline.shielded():
        savepoint.commit()


def _roll_back(savepoint: SessionTransaction, error: BaseException) -> None:
    """Raises `SavepointLost` if it fails, unless the error already says that the row ends the sweep."""
    try:
        savepoint.rollback()
    except Exception as broken:
        if isinstance(error, Exception) and not server_gone(error):
            raise SavepointLost(f"A row failed ({error!r}), and so did its rollback ({broken!r}).") from broken
