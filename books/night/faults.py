"""The night's crashes, all SIGKILL: the leading beat, and the child of the bank lane, twice, at its worst moments.

The first is when the child holds both a job that has committed work and one that has not. After the kill, the rows say
which jobs it held; each must be claimed anew within 20 s. The second is while several charges are on their way to the
payment gateway: which of them it has, nobody in the house knows then. Where no such moment is seen, none is made.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import func, select

from books.models import AccountStatus, BankAccount, EffectKind, EffectStatus, OutsideEffect
from books.night.plan import Plan, at
from fleet.broker import FleetBroker
from fleet.clock import clock
from fleet.logs import get_logger
from fleet.storage import session
from fleet.up import Fleet
from fleet.workers.presence import Report, present

log = get_logger(__name__)

LANE = "transaction_sync"
RESTART_LIMIT = timedelta(seconds=20)
"""Real time. All that the process held are suspects, and run sixteen at once: 128 syncs of a second or so each are
eight rounds, 9 to 12 s on two cores. That one message is there again within ten seconds has a test of its own."""
_CHARGES_FROM, _CHARGES_UNTIL = at(5, 30), at(6, 30)
_CHARGES_AT_LEAST = 3


@dataclass
class Crash:
    """What the kill of a worker child did. `held` are accounts; `attempts` what each had before."""

    pid: int
    killed_at: datetime
    held: dict[int, int]
    with_commits: int
    waiting: set[int] = field(default_factory=set)
    restarted_in: timedelta | None = None


class Faults:
    """Kills when the time has come; `tick` is called as often as the night looks."""

    def __init__(self, plan: Plan, fleet: Fleet, broker: FleetBroker) -> None:
        self._plan, self._fleet, self._broker = plan, fleet, broker
        self.crash: Crash | None = None
        self.beat_killed: str | None = None
        self.charges_cut: tuple[int, int] | None = None
        """The child that was killed while charges were on their way, and how many."""

    @property
    def killed(self) -> set[int]:
        """The worker children that the night killed itself."""
        return {pid for pid in (self.crash and self.crash.pid, self.charges_cut and self.charges_cut[0]) if pid}

    def tick(self) -> None:
        if self.crash is None:
            self._kill_child_at_its_worst()
        elif self.crash.waiting:
            self._see_restarts(self.crash)
        if self.beat_killed is None and clock.now() >= self._plan.beat_dies_at:
            self._kill_leader()
        if self.charges_cut is None and _CHARGES_FROM <= clock.now() <= _CHARGES_UNTIL:
            self._kill_child_that_charges()

    def _kill_child_at_its_worst(self) -> None:
        with_commits, without = _running()
        if len(with_commits) < 2 or len(without) < 2:  # one of each may end between this look and the kill
            return
        children = [child for child in self._present("worker", LANE) if child.serves]
        if not children:
            return
        os.kill(children[0].pid, signal.SIGKILL)
        with_commits, without = _running()
        held = with_commits | without
        self.crash = Crash(children[0].pid, clock.real_now(), held, len(with_commits), set(held))
        log.info("night_killed_worker", pid=self.crash.pid, held=len(held), with_commits=len(with_commits))

    def _kill_child_that_charges(self) -> None:
        on_their_way = _charges_on_their_way()
        children = [child for child in self._present("worker", LANE) if child.serves]
        if on_their_way < _CHARGES_AT_LEAST or not children:
            return
        os.kill(children[0].pid, signal.SIGKILL)
        self.charges_cut = children[0].pid, on_their_way
        log.info("night_killed_worker", pid=children[0].pid, charges=on_their_way)

    def _see_restarts(self, crash: Crash) -> None:
        """Take off what was claimed anew, or turned out to have ended: its last commit outlived its process."""
        with session() as s:
            rows = s.execute(
                select(BankAccount.id, BankAccount.attempts, BankAccount.status).where(
                    BankAccount.id.in_(crash.waiting)
                )
            ).all()
        crash.waiting -= {
            row.id for row in rows if row.attempts > crash.held[row.id] or row.status != AccountStatus.RUNNING
        }
        if not crash.waiting:
            crash.restarted_in = clock.real_now() - crash.killed_at
            log.info("night_worker_replaced", held=len(crash.held), seconds=crash.restarted_in.total_seconds())

    def _kill_leader(self) -> None:
        leaders = [beat for beat in self._present("beat", "beat") if beat.leads]
        if not leaders:
            return
        os.kill(leaders[0].pid, signal.SIGKILL)
        self.beat_killed = leaders[0].worker_id
        log.info("night_killed_beat", pid=leaders[0].pid, token=self.beat_killed)
        self._fleet.start_beat("beat-3")

    def _present(self, kind: str, name: str) -> list[Report]:
        reports = present(self._broker.client, self._broker.namespace)
        return [report for report in reports if report.kind == kind and report.name == name]


def _charges_on_their_way() -> int:
    called = OutsideEffect.called_at.is_not(None) & (OutsideEffect.status == EffectStatus.RUNNING)
    charges = (OutsideEffect.kind == EffectKind.CHARGE) & called
    with session() as s:
        return s.scalar(select(func.count()).select_from(OutsideEffect).where(charges)) or 0


def _running() -> tuple[dict[int, int], dict[int, int]]:
    """Accounts that run now and their attempts: those that have committed pages, and those that have not."""
    with session() as s:
        rows = s.execute(
            select(BankAccount.id, BankAccount.attempts, BankAccount.pages_done).where(
                BankAccount.status == AccountStatus.RUNNING
            )
        ).all()
    committed = {row.id: row.attempts for row in rows if row.pages_done}
    return committed, {row.id: row.attempts for row in rows if not row.pages_done}
