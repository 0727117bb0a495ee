"""`FleetWorker`: Dramatiq's worker with one pump for all its queues, and threads that own the end of each message.

Stock's consumers are replaced: they sleep when full, poll when idle, hold delays in memory, and acknowledge a message
whatever its hooks did. The hooks of Dramatiq's middleware API are called where stock calls them.

How a thread ends a message stands in `fleet.workers.thread`.

Not guaranteed: that a body runs once. A message whose end could not be written before its worker was reaped ran, and
runs again.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from dramatiq import Worker
from dramatiq.common import join_all
from dramatiq.worker import QUEUE_PREFETCH, _WorkerMiddleware

from fleet.broker.broker import FleetBroker
from fleet.broker.dead import trim
from fleet.broker.ends import End, Fetched
from fleet.broker.order import Order
from fleet.broker.pace import MOST, Pace
from fleet.broker.pump import Pump
from fleet.broker.reaper import LOST_AFTER
from fleet.broker.turn import Turns
from fleet.broker.wake import Wake
from fleet.catalogue import publish_catalogue
from fleet.clock import clock
from fleet.logs import get_logger
from fleet.workers.board import Board, SlotWriter
from fleet.workers.other_release import OtherReleases
from fleet.workers.reading import read
from fleet.workers.ready import Ready
from fleet.workers.thread import FleetWorkerThread
from fleet.workers.watch import Watch, sign_off

log = get_logger(__name__)

_LAST_TURN_SECONDS = 10.0


class FleetWorker(Worker):
    """Consumes the broker's queues (or the given ones) until stopped; one a process.

    It holds `prefetch` messages at most, running ones included; without one twice its threads, or more while jobs are
    short (`fleet.broker.pace`). `ends` counts the ends that were written, by kind, and `stale` those that came late.

    What waits in the queues of `people` is fetched before anything else.

    With a `board` its threads write down there what they run, and a supervisor beats and looks for it. `alone` it
    takes the suspects of its queues, and nothing else; give it one thread and a prefetch of one.
    """

    broker: FleetBroker

    def __init__(
        self,
        broker: FleetBroker,
        *,
        queues: set[str] | None = None,
        worker_threads: int = 8,
        prefetch: int | None = None,
        lost_after: timedelta = LOST_AFTER,
        board: Board | None = None,
        alone: bool = False,
        people: Sequence[str] = (),
        **stock: Any,
    ) -> None:
        super().__init__(broker, queues=queues, worker_threads=worker_threads, **stock)
        self.work_queue: Ready = Ready()  # type: ignore[assignment]
        fixed = prefetch or QUEUE_PREFETCH  # stock's own setting, from the environment
        self.queue_prefetch = fixed or self.queue_prefetch
        self.most_prefetch = fixed or MOST
        self._lost_after, self.board, self._alone, self._people = lost_after, board, alone, people
        self._watch: Watch | None = None
        self._others = OtherReleases()
        self.ends: Counter[str] = Counter()

    def start(self) -> None:
        """Start the pump, the subscription and the threads; returns before the first fetch."""
        broker = self.broker
        broker.emit_before("worker_boot", self)
        queues = sorted(self.consumer_whitelist or broker.get_declared_queues())
        self.pump = Pump(
            broker.client,
            broker.own_scripts.turn,
            Turns(broker.namespace, alone=self._alone),
            broker.broker_id,
            queues,
            pace=Pace(self.queue_prefetch, self.most_prefetch, clock.monotonic()),
            order=Order(self._people),
            deliver=self._deliver,
            ended=self._ended,
            starving=lambda: self.work_queue.empty(),
            fenced=self._fenced,
            take_back=self.work_queue.take_back,
        )
        self.wake = Wake(broker.client, broker.namespace, wake=self.pump.wake, wake_all=self.pump.wake_all)
        publish_catalogue(broker)
        broker.add_middleware(_WorkerMiddleware(self))  # hears of queues that are declared from now on
        for number in range(self.worker_threads):
            self._add_worker(self.board.writer(number) if self.board else None)
        if self.board is None:
            self._watch = self._start_watch()
        self.pump.start()
        self.wake.start()
        broker.emit_after("worker_boot", self)

    def _start_watch(self) -> Watch:
        broker = self.broker
        watch = Watch(
            broker.client,
            broker.own_scripts,
            broker.namespace,
            lambda: [self.pump.worker_id],
            lambda: self.pump.queues,
            trim=lambda queue: trim(broker, queue),
            publish=lambda: publish_catalogue(broker),
            lost_after=self._lost_after,
        )
        watch.start()
        return watch

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
        self.retire()
        join_all(self.workers, timeout)  # type: ignore[no-untyped-call]
        self.return_prefetched()
        self._end()

    def abandon(self) -> list[Fetched]:
        """Hand back what still runs as well, and stop; for a process that ends now. Returns what ran."""
        left = self.pump.hand_back_all()
        self._end()
        return left

    def _end(self) -> None:
        """Write the ends that are there, and leave."""
        self.wake.stop()
        self.pump.stop()
        self.pump.join(_LAST_TURN_SECONDS)
        if self._watch is not None:
            self._watch.stop()
        if not self.pump.held and not self.pump.is_alive():  # a turn without an answer may have fetched something
            sign_off(self.broker.client, self.broker.namespace, self.pump.worker_id)
        self.broker.broker_id = str(uuid.uuid4())  # its turns' numbers are used up: another worker begins at one
        self.broker.emit_after("worker_shutdown", self)

    def retire(self) -> None:
        """Fetch no more, hand back what nobody started; what runs runs on, and its end is written."""
        self.pump.fetch(False)
        for thread in self.workers:
            thread.stop()
        self.return_prefetched()

    def return_prefetched(self) -> None:
        """Hand back the messages that no thread has started, so that they come again in their old order."""
        for one in reversed(self.work_queue.take_back()):
            self.pump.end(one.end("back"))

    def join(self) -> None:
        """Wait until this process holds nothing; for tests."""
        while self.pump.held:
            threading.Event().wait(0.01)

    def _add_consumer(self, queue_name: str, *, delay: bool = False) -> None:
        """Stock's name for: serve this queue as well."""
        if not delay and (not self.consumer_whitelist or queue_name in self.consumer_whitelist):
            self.pump.serve(queue_name)

    def _add_worker(self, slot: SlotWriter | None = None) -> None:
        thread = FleetWorkerThread(
            broker=self.broker,
            consumers={},
            work_queue=self.work_queue,  # type: ignore[arg-type]
            worker_timeout=self.worker_timeout,
        )
        thread.pump, thread.slot, thread.others = self.pump, slot, self._others
        thread.start()
        self.workers.append(thread)

    def _deliver(self, fetched: list[Fetched]) -> None:
        """Bytes are read by the threads, unless an actor's priority must be known before."""
        if any(actor.priority for actor in self.broker.actors.values()):
            self.work_queue.put_all(fetched, [self._priority(one) for one in fetched])
        else:
            self.work_queue.put_all(fetched, [0] * len(fetched))

    def _priority(self, one: Fetched) -> int:
        try:
            return self.broker.get_actor(read(one).actor_name).priority
        except Exception:
            return 0  # its thread will find the same, and make it a dead letter

    def _ended(self, end: End, written: bool) -> None:
        self.ends[end.kind if written else "stale"] += 1
        if not written and end.kind not in ("back",):
            log.warning("end_was_stale", queue=end.queue, id=end.id, kind=end.kind)

    def _fenced(self, worker_id: str) -> None:
        """What nobody started is no longer ours; what runs ends as stale."""
        self.broker.broker_id = worker_id
        if self.board is not None:
            self.board.worker_id = worker_id
        self.pump.forget(self.work_queue.take_back())
