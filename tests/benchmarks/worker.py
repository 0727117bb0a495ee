"""A worker process: `python -m tests.benchmarks.worker {"kind": …, "url": …, …}`, the arguments of `main` as JSON.

Says `"ready"`, with everything imported and the server spoken to. Then `go` starts it, `cpu` has it say its CPU seconds
since then, and `stop` has it say those, its latencies, how many jobs it did and the warnings it logged. Dramatiq's do
not stop in order: a measurement has ended by then.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
from collections.abc import Callable

import dramatiq

from fleet import logs
from fleet.broker import FleetBroker
from fleet.workers.worker import FleetWorker
from tests.benchmarks.jobs import BODIES, QUEUE, broker_of, declare, done, latencies


class _Warnings(logging.Handler):
    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _dramatiq(broker: dramatiq.Broker, threads: int, queues: int) -> Callable[[], None]:
    broker.emit_after("process_boot")
    dramatiq.set_broker(broker)
    for number in range(queues):
        for name in BODIES:
            declare(broker, name, QUEUE if number == 0 else f"{QUEUE}{number}")
    if isinstance(broker, FleetBroker):
        broker.client.ping()
        return FleetWorker(broker, worker_threads=threads).start
    broker.do_qsize(QUEUE)  # type: ignore[attr-defined]  # has the server measured its Lua stack, once a process
    return dramatiq.Worker(broker, worker_threads=threads).start


def main(kind: str, url: str, namespace: str, threads: int, queues: int, connections: int, whole: bool) -> None:
    """Wait for the words."""
    logs.configure("json", "WARNING")
    warnings = _Warnings(level=logging.WARNING)
    logging.getLogger().handlers[:] = [warnings]
    if kind == "huey":
        from tests.benchmarks import huey_peer  # the others' processes do without it

        start, finish = huey_peer.consumer(url, namespace, threads)
    else:
        broker = broker_of(kind, url, namespace, connections=connections, whole=whole)
        start, finish = _dramatiq(broker, threads, queues), lambda: None
    print('"ready"', flush=True)
    began = _cpu()
    for word in map(str.strip, sys.stdin):
        used = _cpu() - began
        if word == "go":
            began = _cpu()
            start()
        elif word == "cpu":
            print(json.dumps(used), flush=True)
        else:
            finish()
            said = {"latencies": latencies, "cpu": used, "warnings": warnings.count, "done": done()}
            print(json.dumps(said), flush=True)
            os._exit(0)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
