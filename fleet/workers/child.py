"""One worker process of a lane: `python -m fleet.workers.child --app ROOT LANE ID`, started by its supervisor.

On SIGTERM it hands back what it only prefetched, gives running jobs the lane's drain time, and ends. What runs longer
returns to its queue when its supervisor sees the process end. It dies with its supervisor.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from dramatiq import Broker, MessageProxy, Middleware

from fleet import wire
from fleet.app import App, load, process_broker, settings
from fleet.clock import configure as configure_clock
from fleet.declarations import Lane
from fleet.logs import configure as configure_logs
from fleet.logs import get_logger
from fleet.workers.parent import die_with_parent
from fleet.workers.presence import Presence, Report, running_jobs
from fleet.workers.worker import FleetWorker

log = get_logger(__name__)


class _Running(Middleware):
    """Notes which job each thread runs, for this process's report."""

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        running_jobs.started(message.message_id, message.actor_name)

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        running_jobs.ended()

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        running_jobs.ended()


def run(app: App, lane: Lane) -> None:
    """Serve a lane's queues until SIGTERM or SIGINT, then drain."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    os.nice(lane.nice)
    broker = process_broker()
    broker.add_middleware(_Running())

    def report() -> Report:
        return Report("worker", lane.name, worker_id=broker.broker_id, jobs=running_jobs.now())

    presence = Presence(broker.client, broker.namespace, report)
    worker = FleetWorker(broker, queues=set(lane.queues), worker_threads=lane.threads, prefetch=lane.prefetch)
    worker.start()
    presence.start()
    log.info("worker_ready", lane=lane.name, worker=broker.broker_id, queues=list(lane.queues), threads=lane.threads)
    stop.wait()
    worker.stop(timeout=wire.duration_ms(lane.drain))
    presence.stop()
    left = [job.message_id for job in running_jobs.now()]
    if left:
        log.warning("drain_cut", lane=lane.name, drain=str(lane.drain), returned=left)
    log.info("worker_ended", lane=lane.name, worker=broker.broker_id)


def main() -> None:
    """The entry point; configuration comes from the environment and two arguments."""
    die_with_parent(signal.SIGKILL)
    parser = argparse.ArgumentParser(prog="python -m fleet.workers.child")
    parser.add_argument("--app", type=Path, required=True)
    parser.add_argument("lane")
    parser.add_argument("worker_id")
    arguments = parser.parse_args()
    app = load(arguments.app)
    configured = settings()
    configure_logs(configured.log_format, configured.log_level)
    configure_clock(configured)
    process_broker().broker_id = arguments.worker_id
    run(app, app.lane(arguments.lane))
    sys.stdout.flush()  # what jobs printed; `os._exit` would drop it
    os._exit(0)  # a job left running past its drain must not keep the process; its message returns by the supervisor


if __name__ == "__main__":
    main()
