"""The night's two crashes, both SIGKILL: the leading beat, and the child of the bank lane at its worst moment.

That moment is when the child holds both a job that has committed work and one that has not. After the kill, the rows
say which jobs it held; each must be claimed anew within 10 s.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import select

from books.models import AccountStatus, BankAccount
from books.night.plan import Plan
from fleet.broker import FleetBroker
from fleet.clock import clock
from fleet.logs import get_logger
from fleet.storage import session
from fleet.up import Fleet
from fleet.workers.presence import Report, present

log = get_logger(__name__)

LANE = "transaction_sync"
RESTART_LIMIT = timedelta(seconds=10)


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

    def tick(self) -> None:
        if self.crash is None:
            self._kill_child_at_its_worst()
        elif self.crash.waiting:
            self._see_restarts(self.crash)
        if self.beat_killed is None and clock.now() >= self._plan.beat_dies_at:
            self._kill_leader()

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
