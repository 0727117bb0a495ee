"""Plays one night from end to end: servers, sandbox, fleet, people, crashes, drain, janitors, report.

Everything lives in one folder, which is emptied first; two nights in different folders do not meet. On failure of any
process to start, the error names its log.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.live import Live
from sqlalchemy import text

from books.night import figures, judge_bank, judge_desk, judge_elastic, judge_house, judge_outside, judge_slots
from books.night.desk import LOOKS_EVERY, PEOPLE, Desk, fill
from books.night.faults import Faults
from books.night.judge_elastic import ElasticWatch
from books.night.live import save_picture, view
from books.night.plan import ACCOUNTS, EVENING, Plan
from books.night.report import Line, Report
from books.night.world import World, sandbox
from books.seeding import Expected
from fleet import app as application
from fleet import balance_by_hand, logs, probe
from fleet import clock as clocks
from fleet.app import App
from fleet.broker import FleetBroker
from fleet.clock import clock
from fleet.errors import FleetError
from fleet.gone import server_gone
from fleet.local import servers
from fleet.logs import brief, get_logger
from fleet.storage import database
from fleet.up import Fleet

log = get_logger(__name__)

ROOT = Path(__file__).resolve().parent.parent.parent
_LOOK_SECONDS = 0.05
_VIEW_SECONDS = 0.5
# Real: the longest retry delay, compressed, and a killed worker's heartbeat many times over.
_SETTLE = timedelta(seconds=90)


class NightRefused(FleetError):
    """Raised when a night cannot be played here: its folder is in use, or its database is not empty."""


def play(plan: Plan, console: Console, picture: Path | None = None) -> Report:
    """Play the night and judge it; `picture` gets the live view of its busiest minutes as SVG.

    Raises `NightRefused`, `SandboxFailed`, `ServerUnreachable`, `ServerTooOld`, `ServerRefused` or
    `EmbeddedServerFailed`.
    """
    with _own_folder(plan.folder), servers(ROOT, plan.folder / "servers"):
        os.environ["FLEET_NAMESPACE"] = f"night-{uuid.uuid4().hex[:12]}"
        night = plan.clock_from(clock.real_now())
        environment = {**clocks.environment(night), "FLEET_LOG_FORMAT": "json"}
        os.environ.update(environment)
        with sandbox(plan.folder / "world", seed=plan.seed, accounts=ACCOUNTS, environment=environment) as world:
            os.environ.update(world.environment())
            app = application.load(ROOT)
            clocks.configure(application.settings())
            logs.configure("json", "WARNING")
            _require_empty()
            volumes = {"backlog": plan.backlog, "submissions": plan.submissions, "evals": plan.evals}
            expected = fill(plan.folder / "inbox", seed=plan.seed, today=EVENING.date(), **volumes)
            if not plan.balance:
                balance_by_hand.switch(
                    application.process_broker(),
                    on=False,
                    entries=[entry for entry in app.schedule if entry.elastic],
                    by="the night",
                    because="it is played without a balancer",
                )
            return _Night(plan, app, world, expected, console).play(picture)


@contextmanager
def _own_folder(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise NightRefused(f"Another night is being played in {folder}; name another with --folder.") from None
        shutil.rmtree(folder)
        folder.mkdir()
        yield


def _require_empty() -> None:
    with database().connect() as connection:
        if connection.scalar(text("SELECT EXISTS (SELECT 1 FROM bank_accounts UNION ALL SELECT 1 FROM slots)")):
            raise NightRefused(
                "The database of FLEET_DATABASE_URL holds accounts already, and a night must know every row it judges: "
                "name an empty database, or unset the variable to have one made."
            )


@contextmanager
def _asked_again() -> Iterator[None]:
    """People and on-call ask again where a server is away: that the night goes on is what is judged."""
    try:
        yield
    except Exception as error:
        if not server_gone(error):
            raise
        log.warning("asked_in_vain", error=brief(error))


class _Night:
    def __init__(self, plan: Plan, app: App, world: World, expected: Expected, console: Console) -> None:
        self._plan, self._app, self._world, self._expected, self._console = plan, app, world, expected, console
        self._broker: FleetBroker = application.process_broker()
        self._fleet = Fleet(app, plan.folder / "logs", environment={}, beats=2)
        self._faults = Faults(plan, self._fleet, self._broker)
        self._died: dict[str, int] = {}
        self._desk = Desk(expected, seed=plan.seed, journal=plan.folder / PEOPLE)
        self._elastic = ElasticWatch(app, self._broker)

    def play(self, picture: Path | None) -> Report:
        self._fleet.start_lanes()
        self._fleet.start_beats()
        people = threading.Thread(target=self._people, name="people", daemon=True)
        people.start()
        try:
            with Live(console=self._console, refresh_per_second=4, transient=True) as live:
                shown = 0.0
                while clock.now() <= self._plan.ends:
                    with _asked_again():
                        self._elastic.look(clock.now())
                        if self._plan.crashes:
                            self._faults.tick()
                        self._note_ended()
                        if time.monotonic() - shown > _VIEW_SECONDS:
                            seen, shown = view(self._app, self._broker, self._faults), time.monotonic()
                            live.update(seen)
                            if picture is not None and self._faults.crash and self._faults.crash.restarted_in:
                                save_picture(seen, picture)
                                picture = None
                    time.sleep(_LOOK_SECONDS)
            people.join()
            self._drain()
            bank = list(judge_bank.judge(self._plan, self._world, self._expected, self._faults.crash))
            self._note_ended()
        finally:
            self._console.print("The last slot is past; draining …")
            self._fleet.stop()
        return self._report(bank)

    def _people(self) -> None:
        """In a thread of their own: whoever sends waits for nobody's picture of the night."""
        while (now := clock.now()) <= self._plan.ends:
            with _asked_again():
                self._desk.act(now)
            time.sleep(LOOKS_EVERY.total_seconds())

    def _note_ended(self) -> None:
        ended = self._fleet.ended()
        if self._faults.beat_killed is not None:  # the one that the night killed itself
            ended = {name: code for name, code in ended.items() if not (name.startswith("beat") and code == -9)}
        self._died.update(ended)

    def _drain(self) -> None:
        """No further slots; what is queued ends; then each janitor once, and what it sends ends too."""
        time.sleep(clock.to_real(timedelta(minutes=2)).total_seconds() + 0.5)  # the slot of the last minute is judged
        self._fleet.stop_beats()
        self._settle()
        for janitor in application.janitors(self._app):
            self._app.actor(janitor).send()
        self._settle()

    def _settle(self) -> None:
        ends = time.monotonic() + _SETTLE.total_seconds()
        queues = [queue for lane in self._app.lanes for queue in lane.queues]
        while time.monotonic() < ends and any(reading.left for reading in probe.read(self._broker, queues)):
            if self._plan.crashes:
                self._faults.tick()
            time.sleep(_LOOK_SECONDS)

    def _report(self, bank: list[Line]) -> Report:
        report = Report(self._plan.seed, self._plan.seconds)
        report.lines += judge_slots.judge(self._app, self._plan, self._broker, self._faults.beat_killed)
        report.lines += bank
        report.lines += judge_desk.judge(self._world, self._expected)
        report.lines += judge_outside.judge(self._world, self._expected, self._faults.charges_cut)
        report.lines += judge_elastic.judge(self._app, self._plan, self._broker, self._world, self._elastic)
        report.people = figures.people_waited(self._world.model_log, self._desk.sent)
        report.figures = figures.of(self._app, report.people, self._expected, self._desk.sent, self._elastic)
        report.lines += judge_house.judge(self._app, self._plan, self._broker, self._faults.killed, self._died)
        return report
