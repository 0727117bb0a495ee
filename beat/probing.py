"""Has the leading replica read and judged the queues each night minute, from a thread of its own (`fleet.health`).

Its client is its own too, with a timeout: nothing that it waits for can hold up the alarm clock, the lead or firing.
Followers wait. With each look the replica tells Sentry's monitor `fleet-beat` that it leads and could fire; if all
replicas stop, or none can fire, the monitor says so.

Not guaranteed: a look in each minute. One that takes longer leaves out the minutes it takes. While Redis does not
answer there is none, and others say why.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import redis

from fleet import check_ins, health
from fleet.broker import FleetBroker
from fleet.clock import clock
from fleet.flow import MINUTE
from fleet.logs import get_logger

log = get_logger(__name__)

ANSWERS_WITHIN = timedelta(seconds=2)
"""Real time; a probe costs Redis about a millisecond."""
_LEAST_SECONDS = 0.05


class Probing:
    """Looks once a night minute while `leads()`, from `start` to `stop`; `ready` says what keeps it from firing."""

    def __init__(
        self,
        broker: FleetBroker,
        client: redis.Redis,
        leads: Callable[[], bool],
        ready: Callable[[], str | None],
    ) -> None:
        self._broker, self._client, self._leads, self._ready = broker, client, leads, ready
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Look no more. One that is under way is left; it ends with the process."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(until_next_minute()):
            if self._leads():
                self._look()

    def _look(self) -> None:
        if self._ready() is None:
            check_ins.alive("beat")
        try:
            health.look(self._broker, "beat", self._client)
        except redis.RedisError as error:
            log.debug("probe_unanswered", error=str(error))
        except Exception:  # one look that breaks must not be the last
            log.exception("probe_broke")


def until_next_minute() -> float:
    """Real seconds until the next night minute begins."""
    now = clock.now()
    begun = now.replace(second=0, microsecond=0)
    return max(_LEAST_SECONDS, clock.to_real(begun + MINUTE - now).total_seconds())
