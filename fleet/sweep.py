"""Go through rows one at a time: a bad row means go on, a deadline means leave.

It publishes how far it is (`fleet.progress`), so that a deadline says "timed out after 340 of 1772"; rows without a
length make that "after 340 rows".

Not guaranteed: isolation of what `work` does. A `work` that needs its row's writes kept or dropped alone opens its
own transaction (`with session() as s:`). On failure of a row a WARNING names it; the sweep ends with one line that
counts, at WARNING when any row failed or the sweep was cut short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from fleet import deadline, metrics, progress
from fleet.logs import get_logger

log = get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class SweepResult:
    """How far a sweep came; `verdict` is `cut` when something other than a bad row ended it."""

    processed: int
    failed: int
    verdict: Literal["done", "cut"]


def sweep(name: str, rows: Iterable[T], work: Callable[[T], object], *, key: Callable[[T], Any] = repr) -> SweepResult:
    """Call `work` for each row and count.

    Raises whatever is not an `Exception` (`DeadlineExceeded` before all), and whatever iterating the rows raises,
    after the summary line is logged.
    """
    processed = failed = 0
    done = False
    of, unit = (len(rows), "") if isinstance(rows, Sized) else (None, "rows")
    progress.publish(0, of, unit)
    try:
        for row in rows:
            deadline.check()
            try:
                work(row)
            except Exception as error:
                failed += 1
                log.warning("sweep_row_failed", sweep=name, row=str(key(row)), error=repr(error))
            processed += 1
            progress.publish(processed, of, unit)
        done = True
    finally:
        verdict: Literal["done", "cut"] = "done" if done else "cut"
        say = log.info if done and not failed else log.warning
        say("sweep", sweep=name, verdict=verdict, processed=processed, failed=failed)
        metrics.sweep_rows(name, processed - failed, failed)
    return SweepResult(processed, failed, verdict)
