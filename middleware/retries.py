"""Decides what becomes of a job that failed: tried again by its lane's or actor's shape, parked, or a dead letter.

Delays are night durations; the broker turns them into real ones. A retry waits a random time up to `first * 2^n` (full
jitter, so that what failed together does not come back together), never longer than `longest`. `RetryLater` names its
delay and uses up an attempt. An actor declared with Dramatiq's own options (`max_retries`, …) keeps them.

Two failures are nobody's fault and use up no attempt, so often at most (`fleet.unspent`), while the message expires as
ever. A `RetryLater` with a `key` parks that key (a bank connection, a model) for everybody. What a PostgreSQL that is
gone failed comes back after some seconds of real time, each time more; a job that is to be tried once only does not.

Not guaranteed: that a parked key is respected by a job that does not ask (`fleet.parking.check`).
"""

from __future__ import annotations

import random
import time
from datetime import timedelta
from typing import Any

from dramatiq import Broker, MessageProxy, Retry
from dramatiq.middleware import Retries

from fleet import declarations, parking, unspent, wire
from fleet.actor import FleetActor
from fleet.broker import FleetBroker
from fleet.clock import clock
from fleet.errors import RetryLater
from fleet.failures import failure_of
from fleet.logs import get_logger

log = get_logger(__name__)

STOCK = declarations.Retry(attempts=21, first=timedelta(seconds=15), longest=timedelta(days=7))


class LaneRetries(Retries):
    """Stock's options and decisions, with the shape looked up when a job failed."""

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        if exception is None:
            return
        actor = broker.get_actor(message.actor_name)
        throws = message.options.get("throws") or actor.options.get("throws")
        if throws and isinstance(exception, throws):
            message.fail()
            return
        if self._parked(broker, message, exception) or self._awaits(broker, message, actor.options, exception):
            return
        retries = wire.count(message.options.get("retries"))
        message.options["retries"] = retries + 1
        message.options["traceback"] = "".join(failure_of(exception, actor, message).traceback[-30:])
        message.options["requeue_timestamp"] = int(time.time() * 1000)
        if self._exhausted(broker, message, actor.options, retries, exception):
            message.fail()
            self._tell(broker, message, actor.options, retries)
            return
        broker.enqueue(message, delay=_delay(broker, message, actor.options, retries, exception))  # type: ignore[arg-type]

    def _parked(self, broker: Broker, message: MessageProxy, exception: BaseException) -> bool:
        if not unspent.is_parked(message.options, exception):
            return False
        assert isinstance(broker, FleetBroker) and isinstance(exception, RetryLater) and exception.key is not None
        message.options[unspent.PARKINGS] = wire.count(message.options.get(unspent.PARKINGS)) + 1
        if not isinstance(exception, parking.Parked):  # else each who is told that a key is parked would park it anew
            parking.park(broker, exception.key, exception.after)
        wait = wire.duration_ms(exception.after)
        broker.enqueue(message, delay=wait + random.randint(0, wait // 10 + 1_000))  # type: ignore[arg-type]
        return True

    def _awaits(self, broker: Broker, message: MessageProxy, options: dict[str, Any], exception: BaseException) -> bool:
        """Have what PostgreSQL's absence failed come back; not a job of whose first failure there is no second try."""
        if not unspent.awaits_postgresql(message.options, exception):
            return False
        if self._exhausted(broker, message, options, 0, exception):
            return False
        times = message.options[unspent.OUTAGES] = wire.count(message.options.get(unspent.OUTAGES)) + 1
        real = unspent.pause(times) * random.uniform(0.8, 1.2)  # what failed together does not come back together
        broker.enqueue(message, delay=wire.duration_ms(real * clock.rate))  # type: ignore[arg-type]
        message.options[unspent.COMES_BACK_IN] = str(real)
        return True

    def _exhausted(
        self, broker: Broker, message: MessageProxy, options: dict[str, Any], retries: int, exception: BaseException
    ) -> bool:
        retry_when = options.get("retry_when", self.retry_when)
        if retry_when is not None:
            return not retry_when(retries, exception)
        declared = options.get("max_retries", _shape(broker, message).attempts - 1)
        asked = message.options.get("max_retries", declared)
        most = asked if asked is None or type(asked) is int else declared  # of NaN there would be no last try
        return most is not None and retries >= most

    def _tell(self, broker: Broker, message: MessageProxy, options: dict[str, Any], retries: int) -> None:
        target = message.options.get("on_retry_exhausted") or options.get("on_retry_exhausted")
        if target:
            told = {"retries": retries, "max_retries": message.options.get("max_retries", options.get("max_retries"))}
            broker.get_actor(target).send(message.asdict(), told)


def _shape(broker: Broker, message: MessageProxy) -> declarations.Retry:
    actor = broker.actors.get(message.actor_name)
    own = actor.retry if isinstance(actor, FleetActor) else None
    lane = broker.lanes.get(message.queue_name) if isinstance(broker, FleetBroker) else None
    return own or (lane.retry if lane else STOCK)


def _delay(
    broker: Broker, message: MessageProxy, options: dict[str, Any], retries: int, exception: BaseException
) -> int:
    """Night milliseconds until the next try."""
    if isinstance(exception, RetryLater):
        return wire.duration_ms(exception.after)
    if isinstance(exception, Retry) and exception.delay is not None:
        return int(exception.delay)
    shape = _shape(broker, message)
    first = message.options.get("min_backoff", options.get("min_backoff", wire.duration_ms(shape.first)))
    longest = message.options.get("max_backoff", options.get("max_backoff", wire.duration_ms(shape.longest)))
    return random.randint(0, min(int(longest), int(first) * 2 ** min(retries, 40)))
