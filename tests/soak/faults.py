"""What befalls a fleet: faults of many kinds, drawn by a seed, one after the other; docs/soak.md names the others.

Kinds are dealt like cards: each comes once before any comes again, so that a night of a few minutes sees them all. A
fault undoes itself before it returns. One that could not be made (nobody leads just now, Redis is still loading) was
only dealt, and what was wrong is kept; a kind of which none was made is judged (`run`).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import Any

import psutil
import redis

from fleet import balance_by_hand, wire
from fleet.broker import keys
from fleet.clock import clock
from fleet.window import window
from fleet.workers.presence import present
from tests.soak.house import TICK
from tests.soak.processes import LOST_AFTER, Stage

Fault = Callable[["Faults"], None]
_BACK_SECONDS = 60.0  # a lane that has not come back by then is left to the others' judgement
BY, BECAUSE = "the soak", "the soak does this over and over"


class NotMade(Exception):
    """Raised when a fault has nothing to befall just now."""


class Faults:
    """Deals and makes faults on a stage."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage, self._hosts, self._proxy = stage, stage.hosts, stage.hosts.proxy
        self._dice = random.Random(f"faults {seed}")
        self._cards: list[Fault] = []
        self.dealt: Counter[str] = Counter()
        self.made: Counter[str] = Counter()
        self.not_made: dict[str, str] = {}

    def one(self) -> None:
        """Make the next fault."""
        if not self._cards:
            self._cards = list(ALL)
            self._dice.shuffle(self._cards)
        fault = self._cards.pop()
        self.dealt[fault.__name__] += 1
        try:
            fault(self)
        except Exception as error:  # whatever it was, the next one is to come
            self.not_made[fault.__name__] = f"{type(error).__name__}: {error}"[:160]
        else:
            self.made[fault.__name__] += 1

    # Processes.

    def kill_worker(self) -> None:
        self._any("fleet.workers.child").kill()

    def stop_worker(self) -> None:
        self._stop_for(self._any("fleet.workers.child"), 2, 12)

    def kill_spare(self) -> None:
        self._any("fleet.workers.spare").kill()

    def kill_supervisor(self) -> None:
        self._named("lane").kill()

    def stop_supervisor(self) -> None:
        self._stop_for(self._named("lane"), 2, 12)

    def kill_leader(self) -> None:
        self._leader().kill()

    def kill_beat(self) -> None:
        self._named("beat").kill()

    def stop_leader(self) -> None:
        self._stop_for(self._leader(), 3, 10)

    def lose_lane(self) -> None:
        """All processes of a lane stand still until others take them for dead; then they wake, and are fenced."""
        supervisor = self._named("lane")
        with ExitStack() as stopped:
            for process in (supervisor, *supervisor.children(recursive=True)):
                stopped.enter_context(_stopped(process))
            time.sleep(LOST_AFTER.total_seconds() + self._dice.uniform(2, 6))

    def recycle_lane(self) -> None:
        self._named("lane").send_signal(signal.SIGHUP)

    # Servers and the network between.

    def kill_redis(self) -> None:
        self._stage.redis.kill()
        time.sleep(self._dice.uniform(0.2, 3))
        self._stage.redis.start()

    def stop_redis(self) -> None:
        self._stage.redis.signal(signal.SIGSTOP)
        try:
            time.sleep(self._dice.uniform(1, 6))
        finally:
            self._stage.redis.signal(signal.SIGCONT)

    def refuse_writes(self) -> None:
        """Redis has no memory left: it answers, and takes nothing new."""
        with redis.Redis.from_url(self._stage.redis.url) as client:
            client.config_set("maxmemory", 1)
            try:
                time.sleep(self._dice.uniform(0.5, 4))
            finally:
                client.config_set("maxmemory", 0)

    def kill_postgres(self) -> None:
        try:
            self._stage.postgres.kill(self._dice.choice([signal.SIGQUIT, signal.SIGKILL]))
            time.sleep(self._dice.uniform(0.2, 4))
        finally:
            self._stage.postgres.start()

    def partition(self) -> None:
        self._proxy.silent = True
        try:
            time.sleep(self._dice.uniform(1, 8))
        finally:
            self._proxy.silent = False
            self._proxy.cut()

    def delay(self) -> None:
        self._proxy.delay = self._dice.uniform(0.02, 0.2)
        try:
            time.sleep(self._dice.uniform(1, 4))
        finally:
            self._proxy.delay = 0.0

    def cut_connections(self) -> None:
        self._proxy.cut()

    def lose_reply(self) -> None:
        self._proxy.lose_reply(self._dice.randrange(1, 20))

    def lose_request(self) -> None:
        self._proxy.lose_request(self._dice.randrange(1, 20))

    def hold_back(self) -> None:
        self._proxy.hold_back(self._dice.choice([0.5, 3.0]))

    def skew_clocks(self) -> None:
        for wall in self._hosts.walls:
            fresh = wall.with_suffix(".next")
            fresh.write_text(str(self._dice.uniform(-5, 5)))
            fresh.replace(wall)

    def freeze_readings(self) -> None:
        """An old reading under fresh stamps, as a probe would leave that no longer looks."""
        client, stored = self._stage.broker.client, keys.readings(self._stage.broker.namespace)
        old: Any = client.hget(stored, "reading")
        if old is None:
            raise NotMade("there is no reading")
        ends = time.monotonic() + self._dice.uniform(1, 4)
        while time.monotonic() < ends:
            client.hset(stored, mapping={"reading": old, "at": wire.to_ms(clock.real_now())})
            time.sleep(0.02)

    def stop_the_world(self) -> None:
        """One of the sandbox's servers answers nobody: a disk that hangs, a host that swaps."""
        name = self._dice.choice(["bank", "model", "gateway", "mail"])
        with _stopped(self._child(f"books.sandbox.{name}")):
            time.sleep(self._dice.uniform(1, 6))

    # Jobs.

    def poison(self) -> None:
        self._send("poison")

    def hold_the_gil(self) -> None:
        self._send("hold_the_gil", 20)

    def overrun(self) -> None:
        self._send("overrun", 12.0)

    def eat_memory(self) -> None:
        self._send("eat_memory")

    # People.

    def rolling_restart(self) -> None:
        for name, pid in self._hosts.pids().items():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
                self._hosts.until_back(name, pid, _BACK_SECONDS)

    def deploy_schedule(self) -> None:
        self._stage.house.change_schedule()
        for name, pid in self._hosts.pids().items():
            if name.startswith("beat"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
                    self._hosts.until_back(name, pid, _BACK_SECONDS)

    def deploy_broken_code(self) -> None:
        """A release that cannot be imported reaches a lane, which is told to replace its processes; it is mended."""
        supervisor = self._named("lane")
        self._stage.house.break_code()
        try:
            with suppress(psutil.NoSuchProcess):
                supervisor.send_signal(signal.SIGHUP)
            time.sleep(self._dice.uniform(1, 6))
        finally:
            self._stage.house.mend_code()

    def drain_by_hand(self) -> None:
        lane = self._dice.choice([lane.name for lane in self._hosts.app.lanes])
        pid = self._hosts.pids().get(f"lane-{lane}", 0)
        self._command("drain", lane, "--because", BECAUSE)
        self._hosts.until_back(f"lane-{lane}", pid, _BACK_SECONDS)

    def requeue_by_hand(self) -> None:
        self._command("dead", "requeue", "--yes", "--most", "5", "--because", BECAUSE)

    def pause_and_resume(self) -> None:
        self._command("pause", TICK, "--because", BECAUSE)
        time.sleep(self._dice.uniform(0.5, 3))
        self._command("resume", TICK, "--because", BECAUSE)

    def fire_by_hand(self) -> None:
        self._command("fire", TICK, "--because", BECAUSE)

    def balancer_off_and_on(self) -> None:
        elastic = [entry for entry in self._hosts.app.schedule if entry.elastic]
        balance_by_hand.switch(self._stage.broker, False, elastic, by=BY, because=BECAUSE)
        time.sleep(self._dice.uniform(1, 5))
        balance_by_hand.switch(self._stage.broker, True, elastic, by=BY, because=BECAUSE)

    def hold_elastic(self) -> None:
        entry = self._dice.choice([entry for entry in self._hosts.app.schedule if entry.elastic])
        until, now = clock.now() + timedelta(minutes=20), clock.now()
        if not now < until <= window(entry, now).deadline:
            raise NotMade("its night is over")
        balance_by_hand.hold(self._stage.broker, entry, until, by=BY, because=BECAUSE)
        time.sleep(self._dice.uniform(0.5, 3))
        balance_by_hand.release(self._stage.broker, entry, by=BY, because=BECAUSE)

    def calm(self) -> None:
        """Take back what could last: the end of the faults."""
        self._proxy.silent, self._proxy.delay = False, 0.0
        self._proxy.lose_reply(0)
        self._proxy.lose_request(0)
        self._proxy.hold_back(0)
        for wall in self._hosts.walls:
            wall.write_text("0")
        self._hosts.keep_up()

    def _any(self, part: str) -> psutil.Process:
        found = self._hosts.children(part)
        if not found:
            raise NotMade(f"no process of {part}")
        return self._dice.choice(found)

    def _child(self, part: str) -> psutil.Process:
        for process in psutil.Process().children():
            if part in " ".join(process.cmdline()):
                return process
        raise NotMade(f"no process of {part}")

    def _named(self, kind: str) -> psutil.Process:
        names = sorted(name for name in self._hosts.pids() if name.startswith(kind))
        return psutil.Process(self._hosts.pids()[self._dice.choice(names)])

    def _leader(self) -> psutil.Process:
        broker = self._stage.broker
        for report in present(broker.client, broker.namespace):
            if report.leads and report.pid in self._hosts.pids().values():
                return psutil.Process(report.pid)
        raise NotMade("nobody leads")

    def _stop_for(self, process: psutil.Process, least: float, most: float) -> None:
        with _stopped(process):
            time.sleep(self._dice.uniform(least, most))

    def _send(self, actor: str, *arguments: object) -> None:
        self._hosts.app.actor(actor).send(*arguments)

    def _command(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "fleet", "--app", str(self._stage.house.root), *arguments]
        done = subprocess.run(
            command, cwd=self._stage.house.root, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise NotMade(f"{' '.join(arguments[:2])}: {(done.stderr or done.stdout).strip()[-120:]}")


@contextmanager
def _stopped(process: psutil.Process) -> Iterator[None]:
    process.suspend()
    try:
        yield
    finally:
        with suppress(psutil.NoSuchProcess):
            process.resume()


ALL: tuple[Fault, ...] = (
    *(Faults.kill_worker, Faults.kill_worker, Faults.stop_worker, Faults.kill_spare),
    *(Faults.kill_supervisor, Faults.stop_supervisor, Faults.lose_lane, Faults.recycle_lane),
    *(Faults.kill_leader, Faults.kill_beat, Faults.stop_leader),
    *(Faults.kill_redis, Faults.stop_redis, Faults.refuse_writes, Faults.kill_postgres),
    *(Faults.partition, Faults.delay, Faults.cut_connections),
    *(Faults.lose_reply, Faults.lose_reply, Faults.lose_request, Faults.hold_back),
    *(Faults.skew_clocks, Faults.freeze_readings, Faults.stop_the_world, Faults.stop_the_world),
    *(Faults.poison, Faults.hold_the_gil, Faults.overrun, Faults.eat_memory),
    *(Faults.rolling_restart, Faults.deploy_schedule, Faults.deploy_broken_code),
    *(Faults.drain_by_hand, Faults.requeue_by_hand),
    *(Faults.pause_and_resume, Faults.fire_by_hand, Faults.balancer_off_and_on, Faults.hold_elastic),
)
