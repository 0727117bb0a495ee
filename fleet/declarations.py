"""What an application declares: budgets, retry shapes, lanes and schedule entries.

All are frozen, all durations are `timedelta`, and each refuses values that cannot stand at the moment it is
written, with the value in the message. What needs a second declaration to judge (an entry whose actor does not
exist, a queue in two lanes) is judged by `fleet check`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import time, timedelta
from difflib import get_close_matches
from typing import Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fleet.errors import BudgetInvalid, DeclarationInvalid
from fleet.reasons import reason_says_something

ZERO = timedelta(0)
PAST_DRAIN = timedelta(seconds=15)  # what whoever stops a lane gives it beyond its drain: the supervisor's last steps
_MOST = timedelta(days=7)
DEAD_KEPT_FOR = timedelta(days=14)
DEAD_KEPT_MOST = 100_000
CATCH_UP_MOST = 1_000  # one script sends them all
ELASTIC_CHAINS_MOST = 64


def _above_zero(value: object) -> bool:
    return isinstance(value, timedelta) and value > ZERO


def _require_known(entry: str, field: str, value: object, known: tuple[str, ...], more: str = "") -> None:
    if value in known:
        return
    close = get_close_matches(str(value), known, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise DeclarationInvalid(f"Entry({entry!r}, {field}={value!r}): give {', '.join(map(repr, known))}{more}.{hint}")


@dataclass(frozen=True)
class Budget:
    """How long a job may take, in real time, and why.

    At `soft` the job gets `DeadlineExceeded` and leaves a readable state; at `hard` it is taken away from it.

    Raises `BudgetInvalid` if a limit is not positive, longer than a week, soft is not below hard, or the reason
    is empty or only restates the number.
    """

    soft: timedelta
    hard: timedelta
    because: str

    def __post_init__(self) -> None:
        for name, value in (("soft", self.soft), ("hard", self.hard)):
            if not _above_zero(value) or value > _MOST:
                raise BudgetInvalid(
                    f"Budget({name}={value!r}): give a timedelta above zero and up to {_MOST.days} days."
                )
        if self.soft >= self.hard:
            raise BudgetInvalid(f"Budget(soft={self.soft}, hard={self.hard}): soft must be shorter than hard.")
        if not reason_says_something(self.because):
            raise BudgetInvalid(
                f"Budget(because={self.because!r}): say what the time is spent on (for example "
                f"'two pages of 90 days at the bank's p99'), not the number again."
            )


@dataclass(frozen=True)
class Retry:
    """How a failed job is tried again: at most `attempts` runs in all, exponential between `first` and `longest`.

    Delays are night durations.
    """

    attempts: int
    first: timedelta
    longest: timedelta

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise DeclarationInvalid(f"Retry(attempts={self.attempts}): a job runs at least once.")
        spans = _above_zero(self.first) and _above_zero(self.longest)
        if not spans or not self.first <= self.longest <= _MOST:
            raise DeclarationInvalid(
                f"Retry(first={self.first}, longest={self.longest}): 0 < first <= longest <= {_MOST.days} days."
            )


@dataclass(frozen=True)
class Lane:
    """A set of queues and the process pool that serves it; `waits_for` is what its work waits for.

    `drain` is what running jobs get after SIGTERM, in real time. `prefetch` is how many messages a process holds at
    most, running ones included, so no fewer than `threads`; without one it is twice the threads, or more while jobs are
    short. Dead letters of a queue are dropped when they are older than `dead_kept_for`, in night time, or when there
    are more than `dead_kept_most`, oldest first.

    `people` are those of its queues whose work somebody waits for: they are fetched first, and their calls are people's
    in every quota.

    `warm` names a function, as `module:function`, that each worker process calls before it takes its first message:
    what the first job would else make somebody wait for, such as a client that loads an SDK (`fleet.workers.preload`).

    A process over `max_rss` bytes, `max_jobs` jobs or `max_age` is retired and replaced, one at a time; over `kill_rss`
    bytes it is killed at once, as if by the kernel. `cpus` are the processors it may run on, where the platform allows.
    """

    name: str
    queues: tuple[str, ...]
    waits_for: str
    processes: int
    threads: int
    budget: Budget
    retry: Retry
    prefetch: int | None = None
    nice: int = 0
    drain: timedelta = timedelta(seconds=30)
    max_rss: int | None = None
    kill_rss: int | None = None
    max_jobs: int | None = None
    max_age: timedelta | None = None
    cpus: tuple[int, ...] | None = None
    dead_kept_for: timedelta = DEAD_KEPT_FOR
    dead_kept_most: int = DEAD_KEPT_MOST
    people: tuple[str, ...] = ()
    warm: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.queues, str) or not self.queues:
            raise DeclarationInvalid(f"Lane({self.name!r}): queues takes a list of at least one queue name.")
        object.__setattr__(self, "queues", tuple(self.queues))
        if isinstance(self.people, str) or not set(self.people) <= set(self.queues):
            raise DeclarationInvalid(f"Lane({self.name!r}, people={self.people!r}): give queues of its own.")
        for field, value in (
            ("processes", self.processes),
            ("threads", self.threads),
            ("prefetch", self.prefetch),
            ("dead_kept_most", self.dead_kept_most),
            ("max_rss", self.max_rss),
            ("kill_rss", self.kill_rss),
            ("max_jobs", self.max_jobs),
        ):
            if value is not None and value < 1:
                raise DeclarationInvalid(f"Lane({self.name!r}, {field}={value}): give at least 1.")
        if self.prefetch is not None and self.prefetch < self.threads:
            raise DeclarationInvalid(
                f"Lane({self.name!r}, threads={self.threads}, prefetch={self.prefetch}): a process that holds so few "
                f"messages has none for its other threads; give prefetch={self.threads} or more, or fewer threads."
            )
        if not 0 <= self.nice <= 19:
            raise DeclarationInvalid(f"Lane({self.name!r}, nice={self.nice}): give 0 to 19.")
        if not isinstance(self.budget, Budget) or not isinstance(self.retry, Retry):
            raise DeclarationInvalid(
                f"Lane({self.name!r}, budget={self.budget!r}, retry={self.retry!r}): give a Budget and a Retry."
            )
        if self.max_rss and self.kill_rss and self.kill_rss <= self.max_rss:
            raise DeclarationInvalid(
                f"Lane({self.name!r}, max_rss={self.max_rss}, kill_rss={self.kill_rss}): a process is retired before "
                f"it is killed, so kill_rss must be larger."
            )
        if self.warm is not None and (not isinstance(self.warm, str) or not _FUNCTION.fullmatch(self.warm)):
            raise DeclarationInvalid(
                f"Lane({self.name!r}, warm={self.warm!r}): name a function, as 'books.warming:people'."
            )
        for field, span in (("drain", self.drain), ("dead_kept_for", self.dead_kept_for), ("max_age", self.max_age)):
            if span is not None and not _above_zero(span):
                raise DeclarationInvalid(f"Lane({self.name!r}, {field}={span}): give a time above zero.")


@dataclass(frozen=True)
class All:
    """A catch-up that sends up to `most` missed slots, the latest ones, oldest first."""

    most: int

    def __post_init__(self) -> None:
        if isinstance(self.most, bool) or not isinstance(self.most, int) or not 1 <= self.most <= CATCH_UP_MOST:
            raise DeclarationInvalid(f"All({self.most!r}): give 1 to {CATCH_UP_MOST} slots.")


_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Elastic:
    """An entry whose work takes the room that is there: a backlog in the database, drained in small chunks by chains.

    All times are of the entry's `tz`. Chains may start at `window[0]`, and the work should be done by `window[1]`, the
    deadline; from `day` on (which is not before it) one chain at most goes on for a while. `slot` is the entry's own
    cron minute, inside the window: where nobody decides, `cap` chains may run from it to the day. `backlog` names a
    function of the application (`module:function`) that counts what is left in one indexed query; `chunk` is how many
    rows a message takes, `cap` how many chains run at most. Work that waits for a shared `quota` (config/quotas.py) is
    admitted by that quota's free places, and ends at the deadline; all other by free processors.
    """

    window: tuple[time, time]
    day: time
    slot: time
    backlog: str
    chunk: int
    cap: int
    because: str
    quota: str | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.window, (tuple, list)) and len(self.window) == 2):
            raise DeclarationInvalid(f"Elastic(window={self.window!r}): give (opens, deadline), two times of day.")
        object.__setattr__(self, "window", tuple(self.window))
        opens, deadline = self.window
        for field, value in (("window", opens), ("window", deadline), ("day", self.day), ("slot", self.slot)):
            if not isinstance(value, time) or value.tzinfo is not None:
                raise DeclarationInvalid(f"Elastic({field}={value!r}): give a time of day without a zone: time(4, 0).")
        if not after_opening(self.slot, opens) < after_opening(deadline, opens):
            raise DeclarationInvalid(
                f"Elastic(slot={self.slot}, window=({opens}, {deadline})): the slot is what is left where nobody "
                f"decides, so it must lie inside the window."
            )
        if after_opening(self.day, opens) < after_opening(deadline, opens):
            raise DeclarationInvalid(
                f"Elastic(day={self.day}, window=({opens}, {deadline})): the day begins at the deadline or after it."
            )
        for field, number, most in (("chunk", self.chunk, 100_000), ("cap", self.cap, ELASTIC_CHAINS_MOST)):
            if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
                raise DeclarationInvalid(f"Elastic({field}={number!r}): give a whole number, 1 to {most}.")
        if not isinstance(self.backlog, str) or not _FUNCTION.fullmatch(self.backlog):
            raise DeclarationInvalid(
                f"Elastic(backlog={self.backlog!r}): name a function that counts what is left, as "
                f"'books.categorizing:backlog'."
            )
        if self.quota == "":
            raise DeclarationInvalid("Elastic(quota=''): give the name of a quota, or leave it out.")
        if not reason_says_something(self.because):
            raise DeclarationInvalid(f"Elastic(because={self.because!r}): say why it opens then and ends by then.")


def after_opening(instant: time, opens: time) -> timedelta:
    """How long after a window opens a time of day comes; windows may pass over midnight."""
    ahead = timedelta(hours=instant.hour - opens.hour, minutes=instant.minute - opens.minute)
    return (ahead + timedelta(seconds=instant.second - opens.second)) % timedelta(days=1)


CatchUp = Literal["latest", "none"] | All
Overlap = Literal["allow", "skip"]


@dataclass(frozen=True)
class Entry:
    """A line of the schedule: which actor is sent at which slots, and how late it may still start.

    Give `cron` (five fields, in `tz`) or `every` (slots aligned to the epoch). A slot's message that has not started
    `expires` after its slot, in night time, is dropped: a late batch job is worse than a skipped one.

    `catch_up` says which missed slots are still sent, if they have not expired: the `latest` (the default), `none`
    (only what is sent within ten real seconds of its time), or `All(n)`, the last n. With `overlap="skip"` a slot whose
    entry's run before is still in its queue, waiting or running, is not sent. `jitter` has the entry due up to so much
    after its slot, always by the same share, which its name decides; the slot itself stays as it is.

    An `elastic` entry has a window beside its slot; its actor calls `fleet.elastic.chunk`.
    """

    name: str
    expires: timedelta
    because: str
    cron: str | None = None
    every: timedelta | None = None
    tz: str = "UTC"
    actor: str = ""
    catch_up: CatchUp = "latest"
    overlap: Overlap = "allow"
    jitter: timedelta = ZERO
    elastic: Elastic | None = None

    def __post_init__(self) -> None:
        if not self.actor:
            object.__setattr__(self, "actor", self.name)
        if not isinstance(self.catch_up, All):
            _require_known(self.name, "catch_up", self.catch_up, get_args(get_args(CatchUp)[0]), " or All(n)")
        _require_known(self.name, "overlap", self.overlap, get_args(Overlap))
        if (self.cron is None) == (self.every is None):
            raise DeclarationInvalid(f"Entry({self.name!r}): give either cron= or every=.")
        if self.every is not None and not (_above_zero(self.every) and self.every >= timedelta(seconds=1)):
            raise DeclarationInvalid(f"Entry({self.name!r}, every={self.every}): give at least one second.")
        if self.every is not None and self.every % timedelta(milliseconds=1):
            raise DeclarationInvalid(f"Entry({self.name!r}, every={self.every}): give whole milliseconds.")
        if not _above_zero(self.expires):
            raise DeclarationInvalid(f"Entry({self.name!r}, expires={self.expires}): give a time above zero.")
        if not isinstance(self.jitter, timedelta) or not ZERO <= self.jitter < self.expires:
            raise DeclarationInvalid(
                f"Entry({self.name!r}, jitter={self.jitter!r}): give a timedelta from zero up to what expires leaves, "
                f"{self.expires}."
            )
        if self.overlap == "skip" and isinstance(self.catch_up, All) and self.catch_up.most > 1:
            raise DeclarationInvalid(
                f"Entry({self.name!r}, catch_up={self.catch_up}, overlap='skip'): the second of them would overlap the "
                f"first. Give one or the other."
            )
        if not reason_says_something(self.because):
            raise DeclarationInvalid(f"Entry({self.name!r}, because={self.because!r}): say why it runs then.")
        if self.elastic is not None and not isinstance(self.elastic, Elastic):
            raise DeclarationInvalid(f"Entry({self.name!r}, elastic={self.elastic!r}): give Elastic(…).")
        try:
            ZoneInfo(self.tz)
        except (ZoneInfoNotFoundError, ValueError):
            raise DeclarationInvalid(f"Entry({self.name!r}, tz={self.tz!r}): there is no such time zone.") from None
