"""Listens for the names of queues that may have something, or on another channel, on one subscription.

A subscription that is lost (a ping after 500 ms of silence finds out in as long), or whose Redis is no longer the
master that sentinels tell of, is made again; until then the process looks at its queues once a second, and says both
once. Whatever was published while nobody listened is covered by looking at every queue right after each subscription is
confirmed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import redis

from fleet.broker import keys
from fleet.broker.sentinel import left_behind
from fleet.logs import get_logger

log = get_logger(__name__)

_PING_SECONDS = 0.5
_POLL_SECONDS = 1.0


class Wake(threading.Thread):
    """Calls `wake([queue])` on each name that is published, and `wake_all()` when names may have been missed."""

    def __init__(
        self,
        client: redis.Redis,
        namespace: str,
        *,
        wake: Callable[[Iterable[str]], None],
        wake_all: Callable[[], None],
        channel: str | None = None,
    ) -> None:
        super().__init__(name="wake", daemon=True)
        self._client, self._channel = client, channel or keys.wake(namespace)
        self._wake, self._wake_all = wake, wake_all
        self._stopped = threading.Event()
        self._lost = False

    def stop(self) -> None:
        """Stop listening, within the ping's half second."""
        self._stopped.set()

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._listen()
            except redis.RedisError as error:
                if self._stopped.is_set():
                    return
                if not self._lost:
                    log.warning("wake_lost", error=str(error), polls_every=f"{_POLL_SECONDS:g}s")
                self._lost = True
                self._wake_all()
                self._stopped.wait(_POLL_SECONDS / 2)

    def _listen(self) -> None:
        with self._client.pubsub() as subscription:  # type: ignore[no-untyped-call]
            subscription.subscribe(self._channel)
            unanswered = 0
            while not self._stopped.is_set():
                said = subscription.get_message(timeout=_PING_SECONDS)
                if left_behind(self._client, subscription.connection):
                    raise redis.ConnectionError("another Redis is the master now")
                if said is None:
                    if self._lost:  # not confirmed yet: go on polling
                        self._wake_all()
                    unanswered += 1
                    if unanswered > 1:
                        raise redis.ConnectionError("the subscription answers no ping")
                    subscription.ping()
                    continue
                unanswered = 0
                if said["type"] == "message":
                    self._wake([said["data"].decode(errors="replace")])
                elif said["type"] == "subscribe":
                    if self._lost:
                        log.warning("wake_restored")
                    self._lost = False
                    self._wake_all()
