"""A worker process: `python -m tests.benchmarks.worker KIND URL NAMESPACE THREADS QUEUES`.

Says `"ready"`, starts at `go`, and at `stop` says its latencies, CPU seconds and warnings. It does not stop in order:
a measurement has ended by then.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import sys

import dramatiq

from fleet.broker import FleetBroker
from fleet.workers.worker import FleetWorker
from tests.benchmarks.jobs import QUEUE, broker_of, declare, latencies


class _Warnings(logging.Handler):
    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(kind: str, url: str, namespace: str, threads: str, queues: str) -> None:
    """Wait for the words."""
    warnings = _Warnings(level=logging.WARNING)
    logging.basicConfig(level=logging.WARNING, handlers=[warnings])
    broker = broker_of(kind, url, namespace)
    broker.emit_after("process_boot")
    dramatiq.set_broker(broker)
    for number in range(int(queues)):
        for name in ("noop", "nap", "stamp"):
            declare(broker, name, QUEUE if number == 0 else f"{QUEUE}{number}")
    maker = FleetWorker if isinstance(broker, FleetBroker) else dramatiq.Worker
    worker = maker(broker, worker_threads=int(threads))  # type: ignore[arg-type]
    print('"ready"', flush=True)
    began = _cpu()
    for word in sys.stdin:
        if word.strip() == "go":
            began = _cpu()
            worker.start()
        else:
            said = {"latencies": latencies, "cpu": _cpu() - began, "warnings": warnings.count}
            print(json.dumps(said), flush=True)
            os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
