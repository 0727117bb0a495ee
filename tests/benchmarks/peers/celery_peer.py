"""Celery: thread pool, late acknowledgement and rejection of what a lost worker held, as REFERENCE asks of a ledger."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import driver
import jobs
from celery import Celery

app = Celery("bench", broker=jobs.URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=int(os.environ.get("BENCH_PREFETCH", "4")),
    broker_transport_options={"global_keyprefix": f"{jobs.NAMESPACE}:", "visibility_timeout": 3600},
    beat_schedule={"tick": {"task": "tick", "schedule": 1.0, "options": {"queue": driver.QUEUE}}},
    beat_schedule_filename=os.environ.get("BENCH_FOLDER", ".") + "/celery-beat",
    worker_hijack_root_logger=False,
)
TASKS = {name: app.task(name=name)(body) for name, body in jobs.JOBS.items()}


class Peer:
    """Celery."""

    def send(self, queue: str, job: str, *args: Any) -> None:
        TASKS[job].apply_async(args, queue=queue)

    def send_many(self, queue: str, job: str, calls: Sequence[tuple[Any, ...]]) -> None:
        with app.producer_pool.acquire(block=True) as producer:
            for args in calls:
                TASKS[job].apply_async(args, queue=queue, producer=producer)

    def worker(self, threads: int, queues: Sequence[str]) -> None:
        pool = ["-P", "threads", "-c", str(threads), "-Q", ",".join(queues), "-n", f"w{os.getpid()}@bench"]
        app.worker_main(["worker", *pool, "--without-gossip", "--without-mingle", "-l", "ERROR"])

    def scheduler(self) -> None:
        folder = os.environ.get("BENCH_FOLDER", ".")
        argv = ["beat", "-s", f"{folder}/beat-{os.getpid()}", "--pidfile=", "-l", "ERROR"]
        app.start(argv=argv)


if __name__ == "__main__":
    sys.modules.setdefault("celery_peer", sys.modules["__main__"])
    driver.main(Peer())
