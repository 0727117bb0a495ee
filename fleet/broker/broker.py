"""`FleetBroker`: Dramatiq's Redis broker with the connection made at the first message, and a heartbeat of its own.

Wire-compatible with stock Dramatiq. The heartbeat is 5 s and every command does maintenance, so a vanished worker's
messages return within about 6 s, and at once where its supervisor saw it die (`presume_dead`). Stock sends a heartbeat
only with its commands; when every consumer of a worker is full it sends none, and 5 s later a living worker's jobs
would run twice. `Heartbeat` is a thread that beats for it.

Not guaranteed yet: the end of a message is stock Dramatiq's. A message whose retry cannot be enqueued is lost, and a
reply of `fetch` lost on the wire strands its messages until the process ends.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import redis
from dramatiq.broker import Broker, Consumer
from dramatiq.brokers.redis import RedisBroker, _scripts
from dramatiq.common import current_millis
from dramatiq.middleware import Middleware

from fleet.broker import keys
from fleet.declarations import Lane
from fleet.errors import SettingsInvalid
from fleet.logs import get_logger

if TYPE_CHECKING:
    from fleet.settings import Settings

log = get_logger(__name__)

HEARTBEAT_MS = 5_000
_BEAT_SECONDS = 1.0
_DEAD_LETTERS_KEPT_MS = 14 * 24 * 3600 * 1000
_EVERY_COMMAND = 1_000_000  # stock draws from a million: this many of them do maintenance
_IDLE_POLL_MS = 100  # a consumer's longest pause between two looks at an idle queue; stock's is a second
_CONNECTIONS = 1_024  # redis-py caps a pool at 100, which 128 threads and their consumers outgrow


class FleetBroker(RedisBroker):
    """A Redis broker that reads its settings and connects when it is first used.

    `lanes` maps each queue to its lane once an application is loaded; a process that only sends leaves it empty.
    """

    def __init__(self, settings: Callable[[], Settings], middleware: list[Middleware] | None = None) -> None:
        # Not RedisBroker's: that one wants its URL now, and importing actors must not read the environment.
        Broker.__init__(self, middleware=middleware)
        self._settings = settings
        self.broker_id = str(uuid.uuid4())
        self.queues: set[str] = set()
        self.maintenance_chance = _EVERY_COMMAND
        self.heartbeat_timeout = HEARTBEAT_MS
        self.dead_message_ttl = _DEAD_LETTERS_KEPT_MS
        self.lanes: Mapping[str, Lane] = MappingProxyType({})

    # Stock sets these three in __init__; ours are made at first use.
    @cached_property
    def namespace(self) -> str:
        return self._settings().namespace

    @cached_property
    def client(self) -> redis.Redis:  # type: ignore[override]
        url = self._settings().redis_url
        if not url:
            raise SettingsInvalid("FLEET_REDIS_URL is not set, for example redis://127.0.0.1:6379/0.")
        pool = redis.ConnectionPool.from_url(url, max_connections=_CONNECTIONS, health_check_interval=15)
        return redis.Redis(connection_pool=pool)

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> Consumer:
        """As stock, but an idle consumer looks again after a tenth of a second at most."""
        return super().consume(queue_name, prefetch, min(timeout, _IDLE_POLL_MS))

    def presume_dead(self, worker_id: str) -> None:
        """Take back the heartbeat of a worker process that is known to have ended.

        The next command of any worker on the queues it held then returns its messages to them.
        """
        self.client.zadd(keys.heartbeats(self.namespace), {worker_id: 1}, xx=True)

    @cached_property
    def scripts(self) -> dict[str, Any]:  # type: ignore[override]
        return {name: self.client.register_script(script) for name, script in _scripts.items()}


class Heartbeat:
    """Keeps a worker process from being taken for dead while its consumers are silent."""

    def __init__(self, broker: FleetBroker) -> None:
        self._broker = broker
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop beating; what the process still holds returns to its queues within the heartbeat's time."""
        self._stopped.set()
        self._thread.join(_BEAT_SECONDS * 2)

    def _run(self) -> None:
        key, lost = keys.heartbeats(self._broker.namespace), False
        while not self._stopped.wait(_BEAT_SECONDS):
            try:
                self._broker.client.zadd(key, {self._broker.broker_id: current_millis()})
                if lost:
                    log.warning("heartbeat_restored", worker=self._broker.broker_id)
                lost = False
            except redis.RedisError as error:
                if not lost:
                    log.error("heartbeat_lost", worker=self._broker.broker_id, error=str(error))
                lost = True
