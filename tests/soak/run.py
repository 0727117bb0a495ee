"""Plays nights on repeat under faults, and says a line after each.

The night's clock runs on through the days between: a cycle takes three times `seconds`, and faults do not wait for the
evening. Each evening people leave fresh work. When the time is over no further fault is made, everything ends, janitors
pass once, banks are asked once more, and only then is judged.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import psutil
import redis
from dramatiq import DramatiqError
from rich.console import Console
from sqlalchemy.exc import SQLAlchemyError

from books.night.desk import Desk, fill
from books.night.plan import EVENING, LENGTH
from books.night.report import Line, judged
from books.seeding import Expected
from fleet import app as application
from fleet import probe
from fleet.broker import keys
from fleet.clock import clock
from fleet.errors import FleetError
from tests.soak.faults import Faults
from tests.soak.growth import Growth, Slope
from tests.soak.invariants import Spans, Watch, judge, lapse_leases
from tests.soak.processes import Stage

DAY = timedelta(days=1)
AWAY = (redis.RedisError, SQLAlchemyError, FleetError, DramatiqError, psutil.Error, OSError)
"""What a look may raise while something is away on purpose."""
_TICK_SECONDS, _LOOK_SECONDS, _LEDGER_SECONDS = 0.2, 10.0, 45.0
_TALLY_SECONDS = 0.3
_SETTLE_SECONDS = 240.0  # real: the longest retry delay, a hard budget, and a heartbeat's end
_START_SECONDS = 180.0


@dataclass
class Outcome:
    """What a soak found."""

    lines: list[Line]
    slopes: list[Slope]
    dealt: Counter[str]
    faults: Counter[str]
    not_made: dict[str, str]
    started_again: dict[str, int]
    nights: int
    seconds: float
    spans: Spans = field(repr=False)

    @property
    def red(self) -> list[str]:
        """What broke, by name: claims, figures that grew, and faults that never came about however often."""
        claims = [line.claim for line in self.lines if line.verdict == "red"]
        grew = [str(slope) for slope in self.slopes if slope.verdict == "red"]
        return [*claims, *grew, *(f"{kind}, dealt {n} times, never made" for kind, n in self._never_made() if n > 1)]

    @property
    def undecided(self) -> list[str]:
        """What a longer soak would say, by name: of a fault, that its one card found nothing to befall."""
        unsure = [str(slope) for slope in self.slopes if slope.verdict == "not decided"]
        return [*unsure, *(f"{kind}, dealt once, not made" for kind, n in self._never_made() if n == 1)]

    def _never_made(self) -> list[tuple[str, int]]:
        return [(kind.replace("_", " "), n) for kind, n in sorted(self.dealt.items()) if not self.faults[kind]]


class Soak:
    """A soak of so many hours, or of so many nights where they are given; `pause` seconds lie between two faults."""

    def __init__(self, stage: Stage, console: Console, *, hours: float, nights: int | None, pause: float) -> None:
        self._stage, self._console, self._hours, self._nights, self._pause = stage, console, hours, nights, pause
        self._dice = random.Random(f"soak {stage.plan.seed}")
        self._faults, self._growth, self._watch = Faults(stage, stage.plan.seed), Growth(stage), Watch(stage)
        self._over = threading.Event()
        self._began = time.monotonic()
        self._looks: dict[str, float] = {}

    def play(self) -> Outcome:
        """Play and judge."""
        self._stage.hosts.start()
        since = self._until_known()
        threads = [threading.Thread(target=work, daemon=True) for work in (self._befall, self._tally)]
        for thread in threads:
            thread.start()
        played = 0
        while not self._time_is_over(played):
            self._night(played)
            played += 1
        self._over.set()
        for thread in threads:
            thread.join()
        spans = self._end(since)
        lasted = time.monotonic() - self._began
        again = dict(self._stage.hosts.started_again)
        dealt, made, not_made = self._faults.dealt, self._faults.made, self._faults.not_made
        lines = list(self._judged(spans))
        return Outcome(lines, self._growth.slopes(), dealt, made, not_made, again, played, lasted, spans)

    def _judged(self, spans: Spans) -> Iterator[Line]:
        """What judges say. One that breaks is red, and takes along neither what was said before nor what grew."""
        try:
            yield from judge(self._stage, self._watch, spans)
        except Exception as error:
            self._console.print_exception()
            yield judged(
                "house", "judges that came to their end", "all", "not all", [f"{type(error).__name__}: {error}"]
            )

    def _time_is_over(self, played: int) -> bool:
        if self._nights is not None:
            return played >= self._nights
        return played > 0 and time.monotonic() - self._began >= self._hours * 3600

    def _until_known(self) -> datetime:
        """Until a beat has taken over the schedule; from there on each slot has a verdict."""
        broker, ends = self._stage.broker, time.monotonic() + _START_SECONDS
        client: Any = broker.client
        while client.hlen(keys.marks(broker.namespace)) < len(self._stage.hosts.app.schedule):
            if time.monotonic() > ends:
                raise FleetError(f"No beat took over the schedule; look into {self._stage.hosts.folder / 'logs'}.")
            time.sleep(_TICK_SECONDS)
        return max(EVENING, clock.now())

    def _night(self, number: int) -> None:
        began = EVENING + number * DAY
        seed = self._stage.plan.seed + number
        inbox = self._stage.plan.folder / "inbox" / str(number)
        desk = Desk(self._filled(lambda: fill(inbox, seed=seed, today=began.date(), night=number)), seed=seed)
        self._growth.night((time.monotonic() - self._began) / 3600)
        last = self._nights is not None and number + 1 >= self._nights
        while clock.now() < began + (LENGTH if last else DAY):
            self._look(desk, clock.now() - number * DAY)
            time.sleep(_TICK_SECONDS)
        with suppress(*AWAY):
            self._say(number)

    def _filled(self, write: Callable[[], Expected]) -> Expected:
        """The evening's rows, written in one transaction, as soon as the database lets it."""
        ends = time.monotonic() + _START_SECONDS
        while True:
            try:
                return write()
            except SQLAlchemyError:
                if time.monotonic() > ends:
                    raise
            self._stage.hosts.keep_up()
            time.sleep(_TICK_SECONDS)

    def _look(self, desk: Desk, now: datetime) -> None:
        self._stage.hosts.keep_up()
        with suppress(*AWAY):
            desk.act(now)
        for name, every, look in (
            ("watch", _LOOK_SECONDS, self._watch.look),
            ("growth", _LOOK_SECONDS, self._growth.look),
            ("ledger", _LEDGER_SECONDS, self._watch.read_ledger),
        ):
            if time.monotonic() - self._looks.get(name, 0.0) >= every:
                self._looks[name] = time.monotonic()
                with suppress(*AWAY):
                    look()

    def _say(self, number: int) -> None:
        lanes = self._stage.hosts.app.lanes
        readings = probe.read(self._stage.broker, [queue for lane in lanes for queue in lane.queues])
        fired = sum(line.count for line in self._watch.ledger if line.verdict == "fired")
        self._console.print(
            f"night {number + 1}: {(time.monotonic() - self._began) / 60:.1f} min, "
            f"{sum(self._faults.made.values())} faults, {fired} slots fired, {len(self._watch.sent)} messages tallied, "
            f"{sum(r.left for r in readings)} left in queues, {sum(r.dead for r in readings)} dead letters, "
            f"{len(self._watch.beyond)} rows beyond their bound, "
            f"{sum(self._stage.hosts.started_again.values())} processes started again",
            soft_wrap=True,
        )

    def _befall(self) -> None:
        while not self._over.wait(self._dice.uniform(0.5, 1.5) * self._pause):
            self._faults.one()

    def _tally(self) -> None:
        actor, number = self._stage.hosts.app.actor("tally"), 0
        dice = random.Random(f"tally {self._stage.plan.seed}")
        while not self._over.wait(_TALLY_SECONDS):
            number += 1
            with suppress(*AWAY):
                self._watch.note(actor.send(number, dice.uniform(0, 1)), number)

    def _end(self, since: datetime) -> Spans:
        """No further fault, then no further slot; what is queued ends, janitors pass, banks are asked again."""
        hosts = self._stage.hosts
        self._faults.calm()
        self._console.print("No further faults; everything ends …")
        until = calm = clock.now()
        time.sleep(clock.to_real(timedelta(minutes=2)).total_seconds() + 3)  # the slot of that minute is judged
        for fleet in hosts.fleets:
            fleet.stop_beats()
        on_lease = lapse_leases() if self._settle() else 0
        for janitor in application.janitors(hosts.app):
            hosts.app.actor(janitor).send()
        self._settle()
        hosts.app.actor("update_all_transactions").send()
        self._settle()
        hosts.stop()
        return Spans(since, until, calm, on_lease)

    def _settle(self) -> bool:
        """Until no queue has anything left, or the time for it is over; whether none has. No beat fires any more."""
        ends, empty = time.monotonic() + _SETTLE_SECONDS, 0
        queues = [queue for lane in self._stage.hosts.app.lanes for queue in lane.queues]
        while time.monotonic() < ends and empty < 3:
            self._stage.hosts.keep_up()
            with suppress(*AWAY):
                empty = 0 if any(one.left for one in probe.read(self._stage.broker, queues)) else empty + 1
            time.sleep(_TICK_SECONDS)
        return empty > 0
