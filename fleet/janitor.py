"""The form of every janitor: measure, then clean row by row, then one line that says both.

A janitor is a file `janitors/NAME.py` with an actor of that name and `chores()`, what it looks after. A pass measures
each chore before it changes anything, then goes through what is stuck, which a chore streams by the page, so that live
rows of any age hide nothing. Each is mended by itself and on condition that it is still stuck: a pass may be killed at
any line, may run twice at once, and leaves what somebody else holds by now. A row that cannot be mended is counted and
the pass goes on; a server that is gone ends it. It stops with a quarter of its budget left: the next pass has the rest.

It ends with one line, also when there was nothing to do and when it failed half-way:
`recover_stuck_syncs janitor=recover_stuck_syncs verdict=acted scanned=412 stuck=3 recovered=3 failed=0 skipped_live=5
oldest=1h04m took=38ms runbook=docs/when-things-go-wrong.md#recover_stuck_syncs`; a WARNING when something was stuck or
failed. `scanned`, `stuck` and `oldest` are what was measured; `skipped_live` counts live rows, and those that somebody
else took up meanwhile.

Not guaranteed: the line of a process that was killed; its rows stand for the next pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Protocol

from fleet import deadline, metrics
from fleet.clock import clock
from fleet.logs import get_logger

log = get_logger(__name__)

RUNBOOK = "docs/when-things-go-wrong.md"
_ROWS_NAMED = 5  # of those that failed; the line counts all
_KEPT_BACK = 0.25  # of the budget, for the rows that a pass is in when it stops, and for its line


@dataclass(frozen=True)
class Measured:
    """What a chore found before anything was changed; `oldest` is the age of what has been stuck for longest."""

    scanned: int = 0
    stuck: int = 0
    skipped_live: int = 0
    oldest: timedelta | None = None


@dataclass(frozen=True)
class Stuck:
    """One thing that is stuck: what a person calls it, for how long, and in words what a pass does about it.

    `count` says of how many it stands, where they are mended together.
    """

    key: Any
    subject: str
    age: timedelta | None
    plan: str
    count: int = 1


class Chore(Protocol):
    """One kind of thing that a janitor looks after; `measure` is called before `find`, and both only read."""

    def measure(self) -> Measured:
        """Count."""

    def find(self) -> Iterator[Stuck]:
        """What is stuck, streamed."""

    def mend(self, stuck: Stuck) -> int:
        """Mend it if it is still stuck; returns how many were, 0 if somebody else has it by now."""


class Pass:
    """What one pass saw and did so far."""

    def __init__(self, janitor: str) -> None:
        self.janitor = janitor
        self.scanned = self.stuck = self.skipped_live = self.recovered = self.failed = 0
        self.oldest: timedelta | None = None
        self._began = clock.monotonic()
        self.verdict: Literal["acted", "idle", "failed"] = "failed"

    def measured(self, seen: Measured) -> None:
        """Add what a chore measured."""
        self.scanned += seen.scanned
        self.stuck += seen.stuck
        self.skipped_live += seen.skipped_live
        self.oldest = max(filter(None, (self.oldest, seen.oldest)), default=None)

    def mend(self, chore: Chore, stuck: Stuck) -> None:
        """Have a chore mend one thing and count it; raises what says that a server is gone."""
        try:
            mended = chore.mend(stuck)
        except Exception as error:
            from fleet.gone import server_gone  # the broker, which the command line need not load to show its help

            if server_gone(error):
                raise
            if self.failed < _ROWS_NAMED:
                log.warning("janitor_row_failed", janitor=self.janitor, row=stuck.subject, error=_named(error))
            self.failed += stuck.count
        else:
            self.recovered += mended
            self.skipped_live += 0 if mended else stuck.count

    def end(self, error: BaseException | None) -> None:
        """Say the line, and count it."""
        if error is None and not self.failed:
            self.verdict = "acted" if self.stuck or self.recovered else "idle"
        took = clock.monotonic() - self._began
        say = log.warning if self.verdict == "failed" or self.stuck else log.info
        say(
            self.janitor,
            janitor=self.janitor,
            verdict=self.verdict,
            scanned=self.scanned,
            stuck=self.stuck,
            recovered=self.recovered,
            failed=self.failed,
            skipped_live=self.skipped_live,
            oldest=age(self.oldest),
            took=_took(took),
            runbook=runbook(self.janitor),
            **({"error": _named(error)} if error is not None else {}),
        )
        with deadline.shielded():  # a metric that is half registered is refused ever after
            metrics.janitor_passed(
                self.janitor,
                self.verdict,
                took,
                levels={"scanned": self.scanned, "stuck": self.stuck, "skipped_live": self.skipped_live},
                rows={"recovered": self.recovered, "failed": self.failed},
                oldest=self.oldest.total_seconds() if self.oldest else 0.0,
            )


@contextmanager
def one_pass(janitor: str) -> Iterator[Pass]:
    """A pass whose line is said when the block ends, however it ends; for a janitor that has a form of its own."""
    done = Pass(janitor)
    failure: BaseException | None = None
    try:
        yield done
    except BaseException as error:
        failure = error
        raise
    finally:
        done.end(failure)


def run(janitor: str, chores: Sequence[Chore]) -> Pass:
    """One pass over all chores.

    Raises what measuring or finding raises, what says that a server is gone, and `DeadlineExceeded`.
    """
    with one_pass(janitor) as done:
        budget = deadline.remaining()
        for chore in chores:
            done.measured(chore.measure())
        for chore in chores:
            for stuck in chore.find():
                left = deadline.remaining()
                if budget is not None and left is not None and left < budget * _KEPT_BACK:
                    return done
                done.mend(chore, stuck)
    return done


def preview(chores: Sequence[Chore]) -> tuple[Measured, Iterator[Stuck]]:
    """What a pass would measure, and what it would find, streamed; changes nothing."""
    counted = Pass("preview")
    for chore in chores:
        counted.measured(chore.measure())
    seen = Measured(counted.scanned, counted.stuck, counted.skipped_live, counted.oldest)
    return seen, (stuck for chore in chores for stuck in chore.find())


def runbook(janitor: str) -> str:
    """Where the application's runbook tells of a janitor: below a heading of its name."""
    return f"{RUNBOOK}#{janitor}"


def age(age: timedelta | None) -> str:
    """`12s`, `9m30s`, `1h04m`, `3d02h`; `-` for none."""
    if age is None:
        return "-"
    seconds = max(0, int(age.total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3_600, seconds // 86_400
    if days:
        return f"{days}d{hours % 24:02d}h"
    if hours:
        return f"{hours}h{minutes % 60:02d}m"
    return f"{minutes}m{seconds % 60:02d}s" if minutes else f"{seconds}s"


def _named(error: BaseException) -> str:
    """Its kind and its text; redis-py's `repr` has no text."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _took(seconds: float) -> str:
    return f"{seconds * 1_000:.0f}ms" if seconds < 10 else f"{seconds:.1f}s"
