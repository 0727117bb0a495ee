"""One worker process of a lane: `python -m fleet.workers.child --app ROOT --board FILE LANE`, run by its supervisor.

It ends in one of two ways. Retired (the flag on its board, or a deadline that was raised in it), it hands back what it
only prefetched, lets its jobs finish within their budgets, and goes. On SIGTERM it does the same, but jobs get the
lane's drain time, then `Shutdown` is raised in them, and what still runs after that returns to the front of its queue.
It dies with its supervisor.

Not guaranteed: that a raise leaves no lock taken behind, which is why a process in which one was raised is retired.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

import psutil
from dramatiq.middleware import Shutdown

from fleet import deadline
from fleet.app import App, load, process_broker, settings
from fleet.bell import Bell
from fleet.clock import clock
from fleet.clock import configure as configure_clock
from fleet.declarations import Lane
from fleet.logs import configure as configure_logs
from fleet.logs import get_logger
from fleet.workers.board import Board, ChildPhase
from fleet.workers.parent import die_with_parent
from fleet.workers.preload import preload, warm
from fleet.workers.worker import FleetWorker

log = get_logger(__name__)

_PULSE_SECONDS = 0.05
_POLL_SECONDS = 0.02
_SHUTDOWN_SECONDS = 3.0  # for a job to leave once `Shutdown` was raised in it
_NO_SUSPECT_SECONDS = 3.0  # after which one that runs suspects ends without having found another


class _Keeper(threading.Thread):
    """Keeps the child's part of the board, and looks at its retire flag, until the process ends."""

    def __init__(self, board: Board, worker: FleetWorker, stir: Bell) -> None:
        super().__init__(name="keeper", daemon=True)
        self._board, self._worker, self._stir = board, worker, stir
        self.retire = False

    def run(self) -> None:
        pause = threading.Event()
        while True:
            self._board.held = self._worker.pump.held
            self._board.turned_at = self._worker.pump.turned_at
            self._board.jobs = self._worker.ends.total()
            self._board.pulse = clock.monotonic()
            if not self.retire and (self._board.retire or deadline.raised()):
                self.retire = True
                self._board.retire = True  # also where nobody told us to: no further body may begin
                if self._board.phase_of_child < ChildPhase.RETIRING:
                    self._board.phase_of_child = ChildPhase.RETIRING
                self._stir.set()
            pause.wait(_PULSE_SECONDS)


def serve(app: App, lane: Lane, path: Path, *, alone: bool) -> None:
    """Serve a lane's queues until told to end; `alone`, its suspects until none is left."""
    board = Board.open(path)
    process_broker().broker_id = board.worker_id
    stop, stir = Bell(), Bell()

    def on_signal(*_: object) -> None:
        stop.set()
        stir.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    broker = process_broker()
    broker.emit_after("process_boot")  # middleware of Dramatiq's starts its threads here
    threads, prefetch = (1, 1) if alone else (lane.threads, lane.prefetch)
    worker = FleetWorker(
        broker,
        queues=set(lane.queues),
        worker_threads=threads,
        prefetch=prefetch,
        board=board,
        alone=alone,
        people=lane.people,
    )
    if not alone:  # a fork of the spare has imported, and one suspect needs no more
        preload(app, lane)
        warm(lane, stir)
    worker.start()
    keeper = _Keeper(board, worker, stir)
    keeper.start()
    board.phase_of_child = ChildPhase.SERVING
    log.info("worker_ready", lane=lane.name, worker=broker.broker_id, queues=list(lane.queues), threads=threads)
    if alone:
        _until_none_is_left(worker, lane, stir)
    else:
        stir.wait()
    board.phase_of_child = ChildPhase.RETIRING
    worker.retire()
    _finish(worker, lane, stop)
    board.phase_of_child = ChildPhase.DRAINED
    log.info("worker_ended", lane=lane.name, worker=broker.broker_id)


def take_place(lane: Lane) -> None:
    """Be as nice as the lane is, and where it is to be."""
    os.nice(lane.nice)
    if lane.cpus is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, lane.cpus)


def _until_none_is_left(worker: FleetWorker, lane: Lane, stir: Bell) -> None:
    """Run suspects one after the other, so that a death can only be the doing of one."""
    ends = clock.monotonic() + _NO_SUSPECT_SECONDS
    while not stir.wait(_POLL_SECONDS):
        if worker.pump.held:
            ends = clock.monotonic() + _NO_SUSPECT_SECONDS
        elif clock.monotonic() > ends or (worker.ends and _has_grown(lane)):
            return


def _has_grown(lane: Lane) -> bool:
    """What one suspect left in memory must not be what the next one dies of."""
    limit = lane.max_rss or lane.kill_rss
    return limit is not None and psutil.Process().memory_info().rss > limit / 2


def _finish(worker: FleetWorker, lane: Lane, stop: Bell) -> None:
    """Let what runs end: in its budgets, or from SIGTERM on in the drain time."""
    drained_at: float | None = None
    while any(thread.is_alive() for thread in worker.workers):
        if stop.is_set() and drained_at is None:
            drained_at = clock.monotonic() + lane.drain.total_seconds()
        if drained_at is not None and clock.monotonic() >= drained_at:
            break
        stop.wait(_POLL_SECONDS) if drained_at is None else threading.Event().wait(_POLL_SECONDS)
    else:
        worker.stop(timeout=0)
        return
    interrupted = deadline.interrupt_bodies(Shutdown)
    ends = clock.monotonic() + _SHUTDOWN_SECONDS
    while any(thread.is_alive() for thread in worker.workers) and clock.monotonic() < ends:
        threading.Event().wait(_POLL_SECONDS)
    left = worker.abandon()
    log.warning(
        "drain_cut", lane=lane.name, drain=str(lane.drain), interrupted=interrupted, returned=[one.id for one in left]
    )


def main() -> None:
    """The entry point; configuration comes from the environment and the arguments."""
    parser = argparse.ArgumentParser(prog="python -m fleet.workers.child")
    parser.add_argument("--app", type=Path, required=True)
    parser.add_argument("--board", type=Path, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("lane")
    arguments = parser.parse_args()
    die_with_parent(signal.SIGKILL, arguments.parent)
    app = load(arguments.app)
    configured = settings()
    configure_logs(configured.log_format, configured.log_level)
    configure_clock(configured)
    lane = app.lane_here(arguments.lane)
    take_place(lane)
    serve(app, lane, arguments.board, alone=False)
    sys.stdout.flush()  # what jobs printed; `os._exit` would drop it
    os._exit(0)  # a job left running past its drain must not keep the process


if __name__ == "__main__":
    main()
