"""One thread that beats for workers, looks for those that are gone, drops old dead letters, and publishes actors again.

A supervisor's beats for its children: one that holds the GIL for a minute still lives. A worker process without a
supervisor has one of its own. Not guaranteed: a beat from such a process while it holds the GIL.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

import redis

from fleet.broker import keys
from fleet.broker.reaper import LOST_AFTER, Apart, Reaper
from fleet.broker.scripts import Scripts
from fleet.clock import clock
from fleet.logs import get_logger

log = get_logger(__name__)

_EVERY_SECONDS = 1.0
_TRIM_EVERY_SECONDS = 60.0
_PUBLISH_EVERY_SECONDS = 3_600.0  # a small part of the time after which an actor counts as gone


class Watch(threading.Thread):
    """Beats every second, and at least ten times in `lost_after`, until stopped."""

    def __init__(
        self,
        client: redis.Redis,
        scripts: Scripts,
        namespace: str,
        workers: Callable[[], Iterable[str]],
        queues: Callable[[], Sequence[str]],
        *,
        trim: Callable[[str], int],
        publish: Callable[[], None] = lambda: None,
        lost_after: timedelta = LOST_AFTER,
        isolating: bool = False,
        condemned: Callable[[Apart], None] = lambda _: None,
        looked: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name="watch", daemon=True)
        self._client, self._scripts, self._namespace = client, scripts, namespace
        self._workers, self._queues, self._looked = workers, queues, looked
        self._reaper = Reaper(
            client,
            scripts,
            namespace,
            queues(),
            lost_after=lost_after,
            isolating=isolating,
            condemned=condemned,
        )
        self._every = min(_EVERY_SECONDS, lost_after.total_seconds() / 10)
        self._trim, self._trimmed_at = trim, 0.0
        self._publish, self._published_at = publish, clock.monotonic()
        self._stopped = threading.Event()

    def run(self) -> None:
        while True:
            try:
                for worker in self._workers():
                    self._beat(worker)
                self._looked()
                self._reaper.look()
                self._trim_dead_letters()
                self._publish_again()
            except redis.RedisError as error:
                log.debug("beat_not_sent", error=str(error))  # the pump says that Redis is lost
            except Exception:  # it would be the last beat of a process that goes on working
                log.exception("watch_broke")
            if self._stopped.wait(self._every):
                return

    def _trim_dead_letters(self) -> None:
        """Once a minute, busy or idle."""
        if clock.monotonic() - self._trimmed_at < _TRIM_EVERY_SECONDS:
            return
        self._trimmed_at = clock.monotonic()
        for queue in self._queues():
            try:
                dropped = self._trim(queue)
            except redis.ResponseError as error:  # a key of that queue is no longer of its type; the others' letters go
                log.warning("dead_letters_not_trimmed", queue=queue, error=str(error))
                continue
            if dropped:
                log.info("dead_letters_trimmed", queue=queue, dropped=dropped)

    def _publish_again(self) -> None:
        """Once an hour; the worker does so itself when it starts."""
        if clock.monotonic() - self._published_at >= _PUBLISH_EVERY_SECONDS:
            self._published_at = clock.monotonic()
            self._publish()

    def stop(self) -> None:
        """Stop beating."""
        self._stopped.set()
        self.join(_EVERY_SECONDS * 2)

    def _beat(self, worker: str) -> None:
        ns = self._namespace
        asked = [keys.tombstone(ns, worker), keys.beats(ns), keys.heartbeats(ns), keys.workers(ns)]
        wall = int(clock.real_now().timestamp() * 1000)
        self._scripts.beat(keys=asked, args=[worker, wall, json.dumps(sorted(self._queues()))], client=self._client)


def sign_off(client: redis.Redis, namespace: str, worker: str) -> None:
    """Take a worker that holds nothing off the record; one that is left on it is reaped in time."""
    try:
        with client.pipeline() as pipe:
            pipe.hdel(keys.workers(namespace), worker)
            pipe.hdel(keys.beats(namespace), worker)
            pipe.zrem(keys.heartbeats(namespace), worker)
            pipe.delete(keys.turn(namespace, worker))
            pipe.execute()
    except redis.RedisError as error:
        log.warning("worker_left_on_record", worker=worker, error=str(error))
