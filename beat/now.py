"""What time it is for the beat: the server's TIME, carried on by a clock that never jumps.

Each pass hears the TIME of Redis; in between, the monotonic clock counts on from it. So the machine's own wall clock
decides nothing: it may jump an hour, or to 2200 and back, and slots come as before. All it is good for is to sleep
until a slot, and `to_wall` says where on it a slot lies; a jump is said once, and the alarm clock set again.

The server's clock may jump too. Up to 30 s are taken as they are (another server after a failover). A longer jump is
doubted: nothing is judged until the clock comes back, or has stood for a minute (a machine that was paused without its
monotonic clock knowing); one of more than a day is believed only by a process that starts. What was due meanwhile is
caught up as each entry says. So a clock in 2200 moves no mark there.

Not guaranteed: slots in the time over again when the server's clock was set back and that was believed. They had their
verdicts; the entry is silent until its clock has passed its mark. A process that starts believes what it is told; what
that could be is bounded where a mark would follow it (`beat.fire`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from fleet import metrics
from fleet.clock import clock
from fleet.logs import get_logger

log = get_logger(__name__)

TAKEN_AS_IT_IS = 30.0  # seconds
BELIEVED_AFTER = 60.0  # seconds
NEVER_BELIEVED = 86_400.0  # seconds
_JUMP_OF_OWN_CLOCK = 2.0  # seconds; less is what time daemons do
_READ_APART = 0.01  # seconds
_ALARM_OFF_BY = 0.02  # seconds by which the alarm may ring beside its slots before it is set again


class Now:
    """This replica's reading of the server's clock; until it was told one, of its own.

    `ask` and `heard` are called by one thread; any may read the time. The two clocks are given by tests.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = clock.monotonic,
        wall: Callable[[], datetime] = clock.real_now,
    ) -> None:
        self._monotonic, self._wall = monotonic, wall
        self._ahead: float | None = None  # the server's clock less the monotonic one
        self._doubted: tuple[float, float] | None = None  # another such figure, and since when it was heard
        self._wall_ahead: float | None = None  # the wall clock less the monotonic one, as last said
        self._set_at: float | None = None  # the wall clock less the server's, as the alarm was last set by
        self._moved = False

    @property
    def doubt(self) -> str | None:
        """Why the server's clock is not believed at the moment, None if it is."""
        doubted, ahead = self._doubted, self._ahead
        if doubted is None or ahead is None:
            return None
        return f"the clock of Redis jumped by {_shown(doubted[0] - ahead)}: nothing is judged while it is doubted"

    def now(self) -> datetime:
        """The instant the schedule speaks of, by the server's clock; aware, in UTC."""
        return clock.to_night(self.real())

    def real(self) -> datetime:
        """The server's own clock; aware, in UTC."""
        if self._ahead is None:
            return self._wall()
        return datetime.fromtimestamp(self._ahead + self._monotonic(), UTC)

    def to_wall(self, night: datetime) -> datetime:
        """What the machine's own wall clock will show at a night instant, if it does not jump."""
        real = clock.to_real_instant(night)
        if self._ahead is None:
            return real
        left = real - self.real()  # before the wall clock is read: a pause between the two makes it late, never early
        return self._wall() + left

    def ask(self, question: Callable[[], Iterable[Any]]) -> list[Any]:
        """Put a question to the server whose answer begins with its TIME; the rest of the answer.

        Raises what redis-py raises when Redis does not answer.
        """
        sent = self._monotonic()
        seconds, micros, *rest = question()
        self.heard(int(seconds) + int(micros) / 1e6, sent, self._monotonic())
        return rest

    def moved(self) -> bool:
        """Whether the alarm clock has to be set again, by what was heard since this was last asked."""
        moved, self._moved = self._moved, False
        return moved

    def heard(self, server: float, sent: float, received: float) -> None:
        """Take the server's seconds since the epoch, read between two monotonic instants."""
        low, high = server - received, server - sent
        if self._ahead is None:
            self._ahead = (low + high) / 2
        elif low - TAKEN_AS_IT_IS <= self._ahead <= high + TAKEN_AS_IT_IS:
            if self._doubted is not None:
                log.warning("server_clock_came_back", doubted_for=_shown(received - self._doubted[1]))
            self._doubted = None
            # What was known before is as good as this, as long as this does not exclude it: no jitter comes in.
            self._ahead = min(max(self._ahead, low), high)
        else:
            self._judge((low + high) / 2, received)
        self._look_at_the_wall()

    def _judge(self, heard: float, received: float) -> None:
        assert self._ahead is not None
        by = heard - self._ahead
        if self._doubted is None or abs(heard - self._doubted[0]) > TAKEN_AS_IT_IS:
            self._doubted = (heard, received)
            metrics.clock_jumped("server")
            believed = f"after {BELIEVED_AFTER:g} s" if abs(by) <= NEVER_BELIEVED else "by a new process only"
            log.error("server_clock_jumped", by=_shown(by), believed=believed)
        elif received - self._doubted[1] >= BELIEVED_AFTER and abs(by) <= NEVER_BELIEVED:
            log.warning("server_clock_believed", by=_shown(by))
            self._ahead, self._doubted = heard, None

    def _look_at_the_wall(self) -> None:
        monotonic, wall = self._monotonic(), self._wall().timestamp()
        if self._monotonic() - monotonic > _READ_APART:
            return  # this process was stopped between the two
        if self._wall_ahead is None:
            self._wall_ahead = wall - monotonic
        by = wall - monotonic - self._wall_ahead
        if abs(by) > _JUMP_OF_OWN_CLOCK:
            metrics.clock_jumped("own")
            log.error("wall_clock_jumped", by=_shown(by))
        self._wall_ahead = wall - monotonic
        assert self._ahead is not None
        apart = wall - monotonic - self._ahead
        if self._set_at is None or abs(apart - self._set_at) > _ALARM_OFF_BY:
            self._set_at, self._moved = apart, True


def _shown(seconds: float) -> str:
    return f"{'-' if seconds < 0 else ''}{timedelta(seconds=round(abs(seconds)))}"
