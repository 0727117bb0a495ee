"""Who leads: a Redis lock with a term.

    follower --SET key token NX EX ttl--> leader (a new epoch) --renewed every `renewal`--> leader
    leader --renewal failed, unanswered, or token gone--> follower --campaigns again--> ...
    leader --SIGTERM: release--> gone, and the next campaign succeeds at once

A thread of its own campaigns and renews, so that busy jobs cannot starve it. The leader trusts its term until
`sent + ttl - margin` on a monotonic clock that counts suspend, read before the renewal is sent; from then on it is a
follower, whatever Redis thinks.

Not guaranteed: that two replicas never believe in their terms at once across a Redis failover that forgot the lock.
The lock saves work; `fire` checks the token again in the step that sends.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import redis

from fleet import metrics, wire
from fleet.broker import keys
from fleet.clock import clock
from fleet.logs import get_logger
from fleet.settings import LEADER_MARGIN

log = get_logger(__name__)

_HERE = Path(__file__).parent


class Leader:
    """Campaigns for this replica; `token` is its identity, fresh a process."""

    def __init__(
        self,
        client: redis.Redis,
        namespace: str,
        *,
        ttl: timedelta,
        renewal: timedelta,
        on_elected: Callable[[], None] = lambda: None,
    ) -> None:
        self._client, self._namespace, self._ttl, self._renewal = client, namespace, ttl, renewal
        self._on_elected = on_elected
        self.token = str(uuid.uuid4())
        self.epoch = 0
        self._trusted_until = 0.0
        self._acquire, self._renew, self._release = (
            client.register_script((_HERE / f"{name}.lua").read_text()) for name in ("acquire", "renew", "release")
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leader", daemon=True)

    def start(self) -> None:
        metrics.leading(False)  # registers the metrics before there are two threads that could both be the first
        self._thread.start()

    def leads(self) -> bool:
        """Whether this replica may act as leader at this very moment."""
        return clock.monotonic() < self._trusted_until

    def stop(self) -> None:
        """Leave office at once, so that a follower need not wait for the term to end."""
        self._stopped.set()
        self._thread.join(self._ttl.total_seconds())
        if self._trusted_until:
            self._trusted_until = 0.0
            try:
                self._release(keys=[keys.leader(self._namespace)], args=[self.token])
                log.info("beat_released", token=self.token, epoch=self.epoch)
            except redis.RedisError as error:
                log.warning("beat_not_released", token=self.token, error=str(error), ends_in=str(self._ttl))

    def _run(self) -> None:
        while not self._stopped.is_set():
            was_leader = self._trusted_until > 0
            sent = clock.monotonic()
            try:
                holds = self._ask(was_leader)
            except redis.RedisError as error:
                holds = False
                if was_leader:
                    log.error("beat_renewal_failed", token=self.token, epoch=self.epoch, error=str(error))
            self._trusted_until = sent + (self._ttl - LEADER_MARGIN).total_seconds() if holds else 0.0
            self._tell(was_leader, holds)
            self._stopped.wait((self._renewal if holds else self._renewal / 2).total_seconds())

    def _ask(self, was_leader: bool) -> bool:
        leader, ttl = keys.leader(self._namespace), wire.duration_ms(self._ttl)
        if was_leader:
            return bool(self._renew(keys=[leader], args=[self.token, ttl]))
        epoch: Any = self._acquire(keys=[leader, keys.epoch(self._namespace)], args=[self.token, ttl])
        self.epoch = int(epoch) or self.epoch
        return bool(epoch)

    def _tell(self, was_leader: bool, holds: bool) -> None:
        if holds == was_leader:
            return
        metrics.leading(holds)
        if holds:
            log.info("beat_elected", token=self.token, epoch=self.epoch)
            self._on_elected()
        else:
            log.error("beat_deposed", token=self.token, epoch=self.epoch)
