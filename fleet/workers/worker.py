"""`FleetWorker`: Dramatiq's worker with one pump for all its queues, and threads that own the end of each message.

Stock's consumers are replaced: they sleep when full, poll when idle, hold delays in memory, and acknowledge a message
whatever its hooks did. The hooks of Dramatiq's middleware API are called where stock calls them.

How a thread ends a message stands in `fleet.workers.thread`.

Not guaranteed: that a body runs once. A message whose end could not be written before its worker was reaped ran, and
runs again.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from queue import Empty
from typing import Any

from dramatiq import Message, Worker
from dramatiq.common import join_all, q_name
from dramatiq.errors import ActorNotFound
from dramatiq.worker import _WorkerMiddleware, _WorkQueueItem

from fleet.broker.broker import LARGEST_MESSAGE, FleetBroker
from fleet.broker.dead import trim
from fleet.broker.ends import End
from fleet.broker.pump import Fetched, Pump
from fleet.broker.reaper import LOST_AFTER
from fleet.broker.wake import Wake
from fleet.catalogue import publish_catalogue
from fleet.clock import clock
from fleet.errors import MessageTooLarge
from fleet.logs import get_logger
from fleet.workers.thread import FleetMessage, FleetWorkerThread
from fleet.workers.watch import Watch

log = get_logger(__name__)

_LARGEST_FETCHED = LARGEST_MESSAGE + 64 * 1024  # a retry carries a traceback that its first run did not


class FleetWorker(Worker):
    """Consumes the broker's queues (or the given ones) until stopped; one a process.

    `ends` counts the ends that were written, by kind, and `stale` those that came too late.
    """

    broker: FleetBroker

    def __init__(
        self,
        broker: FleetBroker,
        *,
        queues: set[str] | None = None,
        worker_threads: int = 8,
        lost_after: timedelta = LOST_AFTER,
        **stock: Any,
    ) -> None:
        super().__init__(broker, queues=queues, worker_threads=worker_threads, **stock)
        self._lost_after = lost_after
        self.ends: Counter[str] = Counter()

    def start(self) -> None:
        """Start the pump, the subscription and the threads; returns before the first fetch."""
        broker = self.broker
        broker.emit_before("worker_boot", self)
        queues = sorted(self.consumer_whitelist or broker.get_declared_queues())
        self.pump = Pump(
            broker.client,
            broker.own_scripts.turn,
            broker.namespace,
            broker.broker_id,
            queues,
            prefetch=self.queue_prefetch,
            deliver=self._deliver,
            ended=self._ended,
            starving=lambda: self.work_queue.empty(),
            fenced=self._fenced,
        )
        self.wake = Wake(broker.client, broker.namespace, wake=self.pump.wake, wake_all=self.pump.wake_all)
        publish_catalogue(broker)
        self.watch = Watch(
            broker.client,
            broker.own_scripts,
            broker.namespace,
            lambda: self.pump.worker_id,
            lambda: self.pump.queues,
            trim=lambda queue: trim(broker, queue),
            lost_after=self._lost_after,
        )
        broker.add_middleware(_WorkerMiddleware(self))  # hears of queues that are declared from now on
        for _ in range(self.worker_threads):
            self._add_worker()
        self.watch.start()
        self.pump.start()
        self.wake.start()
        broker.emit_after("worker_boot", self)

    def pause(self) -> None:
        """Stop fetching, and stop the threads after the message each works on."""
        self.pump.fetch(False)
        for thread in self.workers:
            thread.pause()
        for thread in self.workers:
            thread.paused_event.wait()

    def resume(self) -> None:
        """Go on after `pause`."""
        for thread in self.workers:
            thread.resume()
        self.pump.fetch(True)

    def stop(self, timeout: int = 600_000) -> None:
        """Hand back what nobody started, give running messages `timeout` milliseconds, write their ends, and stop."""
        self.broker.emit_before("worker_shutdown", self)
        self.pump.fetch(False)
        for thread in self.workers:
            thread.stop()
        self.return_prefetched()
        join_all(self.workers, timeout)  # type: ignore[no-untyped-call]
        self.return_prefetched()
        self.wake.stop()
        self.pump.stop()
        self.pump.join(10)
        self.watch.stop(left=self.pump.held)
        self.broker.broker_id = str(uuid.uuid4())  # its turns' numbers are used up: another worker begins at one
        self.broker.emit_after("worker_shutdown", self)

    def return_prefetched(self) -> None:
        """Hand back the messages that no thread has started, so that they come again in their old order."""
        items = sorted(self._take_back(), key=lambda item: item._queued_time, reverse=True)
        for item in items:
            assert isinstance(item.message, FleetMessage)
            self.pump.end(item.message.end("back"))

    def _take_back(self) -> list[_WorkQueueItem]:
        """Everything that no thread has started."""
        taken: list[_WorkQueueItem] = []
        with suppress(Empty):
            while True:
                taken.append(self.work_queue.get_nowait())
                self.work_queue.task_done()
        return taken

    def join(self) -> None:
        """Wait until nothing is held and nothing waits in this process; for tests."""
        while self.work_queue.unfinished_tasks or self.pump.held:
            threading.Event().wait(0.01)

    def _add_consumer(self, queue_name: str, *, delay: bool = False) -> None:
        """Stock's name for: serve this queue as well."""
        if not delay and (not self.consumer_whitelist or queue_name in self.consumer_whitelist):
            self.pump.serve(queue_name)

    def _add_worker(self) -> None:
        thread = FleetWorkerThread(
            broker=self.broker, consumers={}, work_queue=self.work_queue, worker_timeout=self.worker_timeout
        )
        thread.pump = self.pump
        thread.start()
        self.workers.append(thread)

    def _deliver(self, fetched: list[Fetched]) -> None:
        for one in fetched:
            try:
                self._deliver_one(one)
            except Exception as error:  # whatever its bytes do to us, the lane goes on
                self.pump.end(_unreadable(one, error))

    def _deliver_one(self, one: Fetched) -> None:
        if len(one.body) > _LARGEST_FETCHED:
            raise MessageTooLarge("?", len(one.body), LARGEST_MESSAGE)
        message = Message.decode(one.body)
        message.options.pop("eta", None)  # of a stock producer: its delay is over
        message.options["redis_message_id"] = one.id
        if message.queue_name.endswith(".DQ"):
            message = message.copy(queue_name=q_name(message.queue_name))
        actor = self.broker.get_actor(message.actor_name)
        self.work_queue.put(_WorkQueueItem(actor.priority, FleetMessage(message, one)))

    def _ended(self, end: End, written: bool) -> None:
        self.ends[end.kind if written else "stale"] += 1
        if not written and end.kind not in ("back",):
            log.warning("end_was_stale", queue=end.queue, id=end.id, kind=end.kind)

    def _fenced(self, worker_id: str) -> None:
        """What nobody started is no longer ours; what runs ends as stale."""
        self.broker.broker_id = worker_id
        self.pump.forget([item.message.fetched for item in self._take_back() if isinstance(item.message, FleetMessage)])


def _unreadable(one: Fetched, error: Exception) -> End:
    reason = "undecodable"
    if isinstance(error, ActorNotFound):
        reason = "unknown actor"
    elif isinstance(error, MessageTooLarge):
        reason = "too large"
    shown = one.id.encode(errors="surrogateescape").decode(errors="backslashreplace")
    log.error("message_unreadable", queue=one.queue, id=shown, reason=reason, error=repr(error)[:500], dead_letter=True)
    known = {"reason": reason, "exception": repr(error)[:500], "traceback": "", "attempts": 0, "worker": one.worker}
    known["died"] = clock.now().isoformat()
    return End(one.worker, one.queue, one.id, "dead", b"", json.dumps(known).encode())
