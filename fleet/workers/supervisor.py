"""The supervisor of a lane: keeps its children running, and takes from them what hurts the others.

It starts the lane's children and replaces one that died (never the others), beats for them in Redis, and reads their
boards ten times a second. From these come

- the hard budget: what runs past it becomes a dead letter within two seconds, and its child is retired: it begins
  nothing more, its other jobs finish in their budgets, its replacement starts at once. One that holds the GIL cannot
  retire and is killed; its other jobs return to the front of their queues, unmarked.
- suspects: what a child died in, if the supervisor did not kill it itself, runs alone (`fleet.workers.isolation`).
- recycling: by memory, jobs, age, or SIGHUP, one child at a time.
- the drain, on SIGTERM or SIGINT; a second signal ends everything at once, and what the children held returns.

A child that dies within its first 5 s and has ended no job is restarted with a growing pause, up to 30 s, so that a
lane which cannot start does not burn the machine; so is one that the machine gave no process or room for. Not
guaranteed: any of this while Redis does not answer; children go on, and what is to be written is written when it does.
"""

from __future__ import annotations

import signal

import redis

from fleet import metrics, sentry
from fleet.app import App, longest_hard, process_broker, settings
from fleet.bell import Bell
from fleet.bounds import LOST_MARGIN
from fleet.broker.broker import NotAccepted
from fleet.broker.dead import trim
from fleet.broker.reaper import Death
from fleet.catalogue import publish_catalogue
from fleet.clock import clock
from fleet.declarations import Lane
from fleet.errors import ServerUnreachable
from fleet.flow import Flow
from fleet.logs import get_logger
from fleet.servers import wait_for_broker
from fleet.workers.isolation import Isolation
from fleet.workers.lane_cpu import LaneCpu
from fleet.workers.presence import Presence
from fleet.workers.process import Child
from fleet.workers.recycling import Recycling
from fleet.workers.relaying import Relaying
from fleet.workers.restarts import Restarts
from fleet.workers.rooms import Rooms
from fleet.workers.systemd import Systemd
from fleet.workers.verdicts import Verdicts
from fleet.workers.vitals import Vitals
from fleet.workers.watch import Watch

log = get_logger(__name__)

_TICK_SECONDS = 0.1
_YOUNG_SECONDS = 5.0
_ANSWERS_WITHIN = 1.0  # seconds from the retire flag to the child's answer
_ENDS_WRITTEN_AFTER = 0.2  # seconds a retired child must be seen idle: a few of its pulses
_GOES_WITHIN = 5.0  # seconds for a retired child that is idle to end by itself
_PAST_DRAIN = 10.0  # seconds a child gets beyond its drain to interrupt and hand back what it holds
_REDIS_AGAIN_SECONDS = 1.0


class Supervisor:
    """Runs one lane of an application, in the foreground."""

    def __init__(self, app: App, lane: Lane) -> None:
        self._app, self._lane, self._broker = app, lane, process_broker()
        self._stop, self._at_once, self._hangup = Bell(), Bell(), Bell()
        self._children: list[Child] = []
        self._unreaped: list[tuple[str, Death | None]] = []
        self._lost: list[tuple[str, str]] = []  # `on_lost` messages whose child is dead
        self._told_after = longest_hard(app.actors, lane) + LOST_MARGIN  # when `on_lost` runs where nobody hurries it
        self._verdicts = Verdicts(self._broker, lane.queues)
        self._rooms = Rooms()
        self._restarts = Restarts(app.root, lane, self._rooms)
        self._recycling = Recycling(lane)
        self._isolation = Isolation(app.root, lane, self._rooms)
        self._vitals = Vitals(lane, Systemd.of(settings()))
        self._flow = Flow(self._broker.client, self._broker.namespace)
        self._cpu = LaneCpu(lane.name, self._flow)
        self._said_unreaped = False
        self._redis_again_at = 0.0  # one call that times out a turn: a Redis that hangs must not hang the loop

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT; a second signal ends the children at once.

        While Redis does not answer it waits, and says so once. Raises `ServerRefused` or `ServerTooOld` for what no
        restart would mend.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGHUP, lambda *_: self._hangup.set())
        where = self._vitals.serve(settings(), self._rooms.registry())
        sentry.begin(settings(), process="supervisor", lane=self._lane.name)
        self._verdicts.check_ins.begin(settings())
        self._wait_for_redis()
        presence = Presence(self._broker.client, self._broker.namespace, self._vitals.reports)
        watch, relaying = self._watch(), Relaying(self._broker, settings().database_url)
        presence.start()
        watch.start()
        relaying.start()
        self._flow.start()
        for fork in [fork for middleware in self._broker.middleware for fork in middleware.forks]:
            # Stock's command runs them beside its workers; a supervisor has children that take messages, and no others.
            log.warning("fork_not_run", function=f"{fork.__module__}:{fork.__name__}", instead="a process of its own")
        log.info("lane_started", lane=self._lane.name, processes=self._lane.processes, metrics=where)
        try:
            if not self._stop.is_set():
                for _ in range(self._lane.processes):
                    self._children += self._restarts.start()
            while not self._stop.wait(_TICK_SECONDS):
                self._tick()
            self._drain()
        finally:
            self._flow.stop()
            relaying.stop()
            watch.stop()
            presence.stop()
            sentry.flush()
            self._isolation.close()
            self._rooms.remove()
        log.info("lane_ended", lane=self._lane.name)

    def _wait_for_redis(self) -> None:
        def say(error: ServerUnreachable) -> None:
            log.error("lane_waits_for_redis", lane=self._lane.name, error=str(error), tries_again_every="1s")
            self._vitals.waits_for("Redis")

        wait_for_broker(self._broker, "worker", self._stop, say)

    def _on_signal(self, *_: object) -> None:
        if self._stop.is_set():
            self._at_once.set()
        self._stop.set()

    def _watch(self) -> Watch:
        broker = self._broker
        return Watch(
            broker.client,
            broker.own_scripts,
            broker.namespace,
            self._beating,
            lambda: self._lane.queues,
            trim=lambda queue: trim(broker, queue),
            publish=lambda: publish_catalogue(broker),
            lost_after=settings().lost_after,
            isolating=True,
            condemned=self._verdicts.tell,
            looked=lambda: self._isolation.waiting(self._verdicts.suspects()),
        )

    def _beating(self) -> list[str]:
        """The ids of the children that live; one that somebody stopped does not."""
        return [child.worker_ids[-1] for child in list(self._children) if not child.is_stopped()]

    def _tick(self, *, draining: bool = False) -> None:
        now = clock.monotonic()
        for child in list(self._children):
            if child.process.poll() is not None:
                self._ended(child, now, draining)
            else:
                self._look_after(child, now, draining)
        self._vitals.look(self._children, waiting=len(self._restarts), now=now, draining=draining)
        self._cpu.look(self._children, now)
        self._settle_with_redis()
        if draining:
            return
        self._children += self._restarts.due(now)
        self._children += self._isolation.start(self._children, now)
        if self._hangup.is_set():
            self._hangup.clear()
            self._recycling.all_of(self._children)
            self._isolation.renew()
            for child in [child for child in self._children if child.alone]:
                self._retire(child, "SIGHUP")  # else it would run one suspect after the other on the code of yesterday
        chosen = self._recycling.next(self._children, now)
        if chosen is not None:
            self._retire(*chosen)

    def _look_after(self, child: Child, now: float, draining: bool) -> None:
        child.note_worker_id()
        for slot in child.overrun(now) if now >= max(self._redis_again_at, child.refused_until) else ():
            try:
                lost = self._verdicts.condemn(child.worker_ids[-1], slot, "hard budget", lost_after=self._told_after)
            except redis.RedisError as error:
                log.warning("not_condemned_yet", lane=self._lane.name, message_id=slot.message_id, error=str(error))
                child.refused_until = clock.monotonic() + _REDIS_AGAIN_SECONDS
                if isinstance(error, redis.ResponseError):  # of one queue; the others' go on
                    continue
                self._redis_again_at = child.refused_until
                return
            child.condemned[slot.delivery] = slot
            if lost is not None:
                child.lost.append(lost)
            self._retire(child, f"{slot.actor} is over its hard budget", draining=draining)
        if self._recycling.over_kill_rss(child, now):
            child.kill("memory over kill_rss")
        elif child.stopped_for(now) > settings().lost_after.total_seconds():
            log.error("worker_stopped", lane=self._lane.name, pid=child.pid, cause="stopped by somebody, not continued")
            child.kill()
        elif child.retired_at is not None:
            self._see_off(child, now)
        elif child.answered and not draining and not child.alone:  # a deadline was raised in it
            self._retire(child, "a deadline was raised in it")

    def _retire(self, child: Child, why: str, *, draining: bool = False) -> None:
        """Have a child begin nothing more and go when its jobs are done; its replacement starts now."""
        if child.retired_at is not None:
            return
        child.retire()
        log.warning("worker_retired", lane=self._lane.name, pid=child.pid, why=why)
        if not draining and not child.alone:
            self._children += self._restarts.start()

    def _see_off(self, child: Child, now: float) -> None:
        """End a retired child when nothing but what was condemned is left in it, or when it cannot answer."""
        assert child.retired_at is not None
        if not child.answered:
            if now - child.retired_at > _ANSWERS_WITHIN and child.holds_the_gil(now):
                killed = child.kill_if_it_does_not_answer()
                if killed:
                    log.error("worker_killed", lane=self._lane.name, pid=child.pid, cause="holds the GIL")
            return
        if child.busy():
            child.empty_since = None
        elif child.empty_since is None:
            child.empty_since = now
        elif now - child.empty_since > (_ENDS_WRITTEN_AFTER if child.condemned else _GOES_WITHIN):
            child.kill()

    def _ended(self, child: Child, now: float, draining: bool) -> None:
        child.note_worker_id()
        *before, last = child.worker_ids
        in_body = [] if child.expected or child.left_in_order else child.in_body()
        for worker in before:
            self._unreaped.append((worker, Death("fenced")))
        try:
            ids = self._verdicts.ids(last, in_body)
        except redis.RedisError:
            ids = [(slot.queue, slot.id) for slot in in_body if slot.id is not None]
        self._unreaped.append((last, Death(child.died_of(), ids)))
        self._lost += child.lost
        jobs = child.board.jobs
        self._children.remove(child)
        self._rooms.forget(child)
        say = log.info if child.retired_at is not None or draining or (child.alone and not ids) else log.error
        died = {"lane": self._lane.name, "pid": child.pid, "cause": child.died_of(), "in_body": len(in_body)}
        if child.alone:
            metrics.worker_ended(self._lane.name, "suspect")
            say("suspect_runner_ended", **died)
        elif child.retired_at is None and not draining:
            young = child.young_deaths + 1 if now - child.started < _YOUNG_SECONDS and not jobs else 0
            metrics.worker_ended(self._lane.name, "died")
            say("worker_died", **died, restart_in=self._restarts.later(young))
        else:
            metrics.worker_ended(self._lane.name, "left")
            say("worker_gone", **died)

    def _settle_with_redis(self) -> None:
        """Return what dead children held, and have `on_lost` run for what was condemned; again until Redis answers."""
        if clock.monotonic() < self._redis_again_at:
            return
        try:
            while self._unreaped:
                self._isolation.found(self._verdicts.reap(*self._unreaped[0]))
                del self._unreaped[0]
            while self._lost:
                self._verdicts.hurry(self._lost[0])
                del self._lost[0]
            self._said_unreaped = False
            self._verdicts.settle()
        except NotAccepted:  # of `on_lost`, which is kept; that was said
            self._redis_again_at = clock.monotonic() + _REDIS_AGAIN_SECONDS
        except redis.RedisError as error:
            if not self._said_unreaped:
                log.warning("messages_not_returned_yet", lane=self._lane.name, error=str(error))
            self._said_unreaped = True
            self._redis_again_at = clock.monotonic() + _REDIS_AGAIN_SECONDS

    def _drain(self) -> None:
        log.info("lane_draining", lane=self._lane.name, drain=str(self._lane.drain))
        for child in self._children:
            child.retire()
            child.process.terminate()
        ends = clock.monotonic() + self._lane.drain.total_seconds() + _PAST_DRAIN
        while self._children and clock.monotonic() < ends and not self._at_once.wait(_TICK_SECONDS / 2):
            self._tick(draining=True)
        for child in self._children:
            log.error("worker_killed", lane=self._lane.name, pid=child.pid, cause="did not end in its drain")
            child.kill()
            child.process.wait()
        self._tick(draining=True)
