"""Everything that runs in a soak: servers, sandbox, and the fleet on two hosts, one of them behind a proxy.

A service manager's part is played too: what ended, by whatever cause, is started again in `keep_up`. The far host has
the lanes named in `FAR` and a beat; what the proxy does to it the near host does not feel.

Not guaranteed: that the hosts are two. They share processors, and `/dev/shm`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psutil

from books.night.plan import ACCOUNTS, Plan
from books.night.world import World, sandbox
from fleet import app as application
from fleet import clock as clocks
from fleet import logs
from fleet.app import App
from fleet.broker import FleetBroker
from fleet.clock import clock
from fleet.up import Fleet
from fleet.workers.presence import present
from tests.broker.conftest import OwnRedis
from tests.broker.proxy import Proxy
from tests.chaos.own_postgres import OwnPostgres, own_postgres
from tests.soak.house import House

FAR = ("transaction_sync", "agent_batch", "soak")
NAMESPACE = "soak"
LOST_AFTER = timedelta(seconds=8)  # not the default of 30: so that a night of minutes sees workers taken for dead


class Hosts:
    """A near and a far fleet of one application."""

    def __init__(self, app: App, folder: Path, proxy: Proxy) -> None:
        self.app, self.proxy, self.folder = app, proxy, folder
        self.broker: FleetBroker = application.process_broker()
        self.walls = [folder / "wall-near", folder / "wall-far"]
        for wall in self.walls:
            wall.write_text("0")
        lanes = [tuple(lane for lane in app.lanes if (lane.name in FAR) == far) for far in (False, True)]
        urls = [{}, {"FLEET_REDIS_URL": proxy.url}]
        self.fleets = [
            Fleet(replace(app, lanes=own), folder / "logs", environment={**url, "SOAK_WALL": str(wall)})
            for own, url, wall in zip(lanes, urls, self.walls, strict=True)
        ]
        self.started_again: Counter[str] = Counter()
        self._keeping = threading.Lock()

    def start(self) -> None:
        """Every lane on its host, and a beat on each."""
        for number, fleet in enumerate(self.fleets, 1):
            fleet.start_lanes()
            fleet.start_beat(f"beat-{number}")

    def keep_up(self) -> None:
        """Start again what has ended; from any thread."""
        with self._keeping:
            for fleet in self.fleets:
                for name in fleet.ended():
                    kind, _, lane = name.partition("-")
                    self.started_again[kind] += 1
                    if kind == "lane":
                        fleet.start_lane(lane)
                    else:
                        fleet.start_beat(name)

    def pids(self) -> dict[str, int]:
        """Supervisors and beats by name; from any thread."""
        with self._keeping:
            return {name: pid for fleet in self.fleets for name, pid in fleet.pids().items()}

    def children(self, part: str) -> list[psutil.Process]:
        """Processes under the supervisors with this in their command line; those that end meanwhile are left out."""
        found = []
        for pid in self.pids().values():
            try:
                below = psutil.Process(pid).children(recursive=True)
                found += [one for one in below if part in " ".join(one.cmdline())]
            except psutil.Error:
                continue
        return found

    def until_back(self, name: str, pid: int, within: float) -> bool:
        """Wait, starting again what ended, until another process has this name and reports; whether it did."""
        ends = time.monotonic() + within
        while time.monotonic() < ends:
            self.keep_up()
            fresh = self.pids().get(name)
            if fresh not in (None, pid) and any(
                report.pid == fresh for report in present(self.broker.client, self.broker.namespace)
            ):
                return True
            time.sleep(0.2)
        return False

    def orphans(self) -> list[str]:
        """Processes of this house that are nobody's, once everything has ended: its supervisor's kill missed them."""
        root = str(self.app.root)
        found = []
        for process in psutil.process_iter(["cmdline"]):
            told = process.info["cmdline"] or []
            if root in told and "fleet.workers" in " ".join(told):
                found.append(f"pid {process.pid} {told[-1]}")
        return found

    def stop(self) -> None:
        """End everything by its drain, whatever was stopped."""
        for process in psutil.Process().children(recursive=True):
            try:
                process.resume()
            except psutil.Error:
                continue
        for fleet in self.fleets:
            fleet.stop()


class Stage:
    """What a soak plays on."""

    def __init__(
        self, plan: Plan, house: House, hosts: Hosts, world: World, redis: OwnRedis, postgres: OwnPostgres
    ) -> None:
        self.plan, self.house, self.hosts, self.world = plan, house, hosts, world
        self.redis, self.postgres = redis, postgres
        self.journal = Path(os.environ["SOAK_JOURNAL"])

    @property
    def broker(self) -> FleetBroker:
        return self.hosts.broker


@contextmanager
def stage(plan: Plan, house: House) -> Iterator[Stage]:
    """Start servers and sandbox, load the application, and end all with the block; the fleet is started by who plays.

    Redis writes through (`appendfsync always`): a soak that lets it forget says nothing of losses.
    """
    folder = plan.folder
    (folder / "valkey").mkdir(parents=True)
    redis = OwnRedis(folder / "valkey")
    redis.start()
    with ExitStack() as running:
        running.callback(redis.stop)
        postgres = running.enter_context(own_postgres())
        proxy = running.enter_context(Proxy(redis.url))
        night = clocks.environment(plan.clock_from(clock.real_now()))
        os.environ.update(
            night,
            FLEET_REDIS_URL=redis.url,
            FLEET_DATABASE_URL=postgres.url,
            FLEET_NAMESPACE=NAMESPACE,
            FLEET_LOG_FORMAT="json",
            FLEET_LOST_AFTER=f"{LOST_AFTER.total_seconds()}s",
            SOAK_JOURNAL=str(folder / "tally"),
        )
        world = running.enter_context(sandbox(folder / "world", seed=plan.seed, accounts=ACCOUNTS, environment=night))
        os.environ.update(world.environment())
        app = application.load(house.root)
        clocks.configure(application.settings())
        logs.configure("json", "ERROR")
        hosts = Hosts(app, folder, proxy)
        running.callback(hosts.stop)
        yield Stage(plan, house, hosts, world, redis, postgres)
