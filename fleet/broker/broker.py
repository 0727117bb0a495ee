"""`FleetBroker`: Dramatiq's Redis broker, which owns the end of a message.

Wire-compatible with stock Dramatiq: the same keys for queues, bodies, what a worker holds and dead letters, so stock
producers and workers can share a queue. What differs is who acts: delays lie in a sorted set and not in a worker's
memory, and a `FleetWorker` ends and fetches messages by one numbered script (`fleet.broker.pump`).

The client's own retries are off, since redis-py would repeat a command whose reply was lost; each script here is safe
to repeat, and is repeated by this module. `send` gives Redis about two seconds to come back and then raises
`NotAccepted`.

Not guaranteed: that a message which raised `NotAccepted` was not accepted; its reply may be what was lost.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from itertools import islice
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import redis
from dramatiq.actor import Actor
from dramatiq.broker import Broker
from dramatiq.brokers.redis import DEFAULT_DEAD_MESSAGE_TTL, DEFAULT_HEARTBEAT_TIMEOUT, _scripts
from dramatiq.errors import BrokerError
from dramatiq.message import Message
from dramatiq.middleware import Middleware

from fleet import wire
from fleet.broker import bulk, keys
from fleet.broker.connection import client_from
from fleet.broker.ends import current
from fleet.broker.hooks import HookedBroker
from fleet.broker.reaper import reap
from fleet.broker.rights import refusal
from fleet.broker.scripts import Scripts
from fleet.broker.sealing import CHUNK, Sealed, bytes_of_retry, check_size, chunks, id_and_bytes
from fleet.clock import clock
from fleet.declarations import Entry, Lane
from fleet.errors import FleetError, SettingsInvalid
from fleet.logs import get_logger

if TYPE_CHECKING:
    from fleet.quota import Quota
    from fleet.settings import Settings

log = get_logger(__name__)

T = TypeVar("T")
MARKED = timedelta(days=7)
"""How long the id of an outbox message is known at least, where nobody takes it off before."""
_CALL_REMEMBERED = 60  # seconds for which a sender's last call is known: longer than `_insist` repeats it
_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)  # between the tries of a send


class NotAccepted(FleetError, BrokerError):
    """Raised when Redis did not accept messages: unreachable, read-only, or out of memory. Nothing is half written.

    Of a fan-out the first `accepted` are accepted; of the `unknown` that follow Redis may have taken all or none, and
    the rest was not sent.
    """

    def __init__(self, message: str, *, accepted: int = 0, unknown: int = 1) -> None:
        super().__init__(message)  # type: ignore[no-untyped-call]  # Dramatiq's base has no types
        self.accepted, self.unknown = accepted, unknown


class FleetBroker(HookedBroker):
    """A Redis broker that reads its settings and connects when it is first used.

    `lanes` maps each queue to its lane, `entries` each name to its entry and `quotas` to its quota, once an application
    is loaded; a process that only sends leaves them empty. Give `url` or `client` where there are no settings.
    """

    def __init__(
        self,
        settings: Callable[[], Settings] | None = None,
        middleware: list[Middleware] | None = None,
        *,
        url: str | None = None,
        client: redis.Redis | None = None,
        namespace: str = "dramatiq",
    ) -> None:
        # Not RedisBroker's: that one wants its URL now, and importing actors must not read the environment.
        self._hooks: tuple[list[Middleware], dict[str, list[Callable[..., Any]]]] = ([], {})
        Broker.__init__(self, middleware=middleware)
        self._settings, self._url, self._namespace = settings, url, namespace
        if client is not None:
            self.__dict__["client"] = client
        self.broker_id = str(uuid.uuid4())
        self.queues: set[str] = set()
        # Stock's scripts still serve `flush`, `join` and the `do_…` methods; they do no maintenance of their own.
        self.maintenance_chance = 0
        self.heartbeat_timeout = DEFAULT_HEARTBEAT_TIMEOUT
        self.dead_message_ttl = DEFAULT_DEAD_MESSAGE_TTL
        self.lanes: Mapping[str, Lane] = MappingProxyType({})
        self.entries: Mapping[str, Entry] = MappingProxyType({})
        self.quotas: Mapping[str, Quota] = MappingProxyType({})

    # Stock sets these three in __init__; ours are made at first use.
    @cached_property
    def namespace(self) -> str:
        return self._settings().namespace if self._settings else self._namespace

    @cached_property
    def client(self) -> redis.Redis:  # type: ignore[override]
        url = self._settings().redis_url if self._settings else (self._url or "redis://127.0.0.1:6379/0")
        if not url:
            raise SettingsInvalid("FLEET_REDIS_URL is not set, for example redis://127.0.0.1:6379/0.")
        return client_from(url)

    @cached_property
    def scripts(self) -> dict[str, Any]:  # type: ignore[override]
        return {name: self.client.register_script(script) for name, script in _scripts.items()}

    @cached_property
    def own_scripts(self) -> Scripts:
        return Scripts(self.client)

    def declare_queue(self, queue_name: str) -> None:
        """Declare a queue. There is no delay queue beside it: delays are this broker's own."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def flush(self, queue_name: str) -> None:
        """Drop a queue's messages: waiting, delayed, held by this process, and dead letters."""
        ns = self.namespace
        held = keys.held(ns, self.broker_id, queue_name)
        self.client.delete(keys.due(ns, queue_name), keys.dead_details(ns, queue_name), held)
        super().flush(queue_name)  # after it: a due id without its body is passed over, a body without its id is lost

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """Send a message, or settle the retry of the one whose hooks this thread runs; `delay` in night milliseconds.

        Raises `MessageTooLarge`, or `NotAccepted` when Redis does not take it within about two seconds.
        """
        settling = current.settling
        if settling is not None and settling.retried_by(message):
            message = message.copy()  # a hook may write into what is sent, and not into what ran
            due = self._due(message, delay or 0)
            message.options.pop(wire.DUE_AT, None)  # written last: who reads a long message's end alone looks there
            message.options.update(due)
            self.emit_before("enqueue", message, delay)
            settling.retry = (bytes_of_retry(message), self._real_ms(delay) or 0)
            self.emit_after("enqueue", message, delay)
            return message
        message, sealed = self.seal(message, delay)
        self.accept([sealed], delay)
        self.emit_after("enqueue", message, delay)
        return message

    def seal(self, message: Message[Any], delay: int | None) -> tuple[Message[Any], Sealed]:
        """A message as it will be sent: under a Redis id of its own, and as the before-enqueue hooks leave it."""
        message = message.copy(options={"redis_message_id": str(uuid.uuid4()), **self._due(message, delay)})
        self.emit_before("enqueue", message, delay)
        return message, (message.queue_name, *id_and_bytes(message))

    def _due(self, message: Message[Any], delay: int | None) -> dict[str, int]:
        """The option that says from when on a message counts as waiting, where that is not its own timestamp."""
        if delay is None and wire.DUE_AT not in message.options:
            return {}
        return {wire.DUE_AT: wire.to_ms(clock.real_now()) + (self._real_ms(delay) or 0)}

    def enqueue_many(self, messages: Iterable[Message[Any]], *, delay: int | None = None) -> Iterator[Message[Any]]:
        """Send messages in order, a chunk a round trip; yields each once it is accepted.

        The enqueue hooks of every middleware are called for each. Raises as `enqueue` does, and what a hook or the
        iterable raises: what was yielded before is accepted, and nothing of the chunk that failed is unless
        `NotAccepted` says that it may be.
        """

        def prepared() -> Iterator[Sealed]:
            for message in messages:
                made, sealed = self.seal(message, delay)
                ready.append(made)
                yield sealed

        ready: list[Message[Any]] = []
        for _ in self._accept_all(prepared(), delay):
            for message in ready:
                self.emit_after("enqueue", message, delay)
            yield from ready
            ready.clear()

    def enqueue_calls(self, actor: Actor[..., Any], calls: Iterable[Sequence[Any]]) -> int:
        """Send one message of the actor for each sequence of positional arguments; returns how many were accepted.

        As `enqueue_many`, but where no middleware hears of an enqueue no `Message` is made (`fleet.broker.bulk`).
        """
        heard = self._hooks_of("before_enqueue") or self._hooks_of("after_enqueue")
        if heard or not bulk.applies():
            return sum(1 for _ in self.enqueue_many(actor.message_with_options(args=tuple(call)) for call in calls))

        def prepared() -> Iterator[Sealed]:
            stream = iter(calls)
            while chunk := list(islice(stream, CHUNK)):
                for id, encoded in bulk.encode_calls(actor.queue_name, actor.actor_name, chunk):
                    check_size(actor.actor_name, encoded)
                    yield actor.queue_name, id, encoded

        return sum(self._accept_all(prepared(), None))

    def _accept_all(self, sealed: Iterator[Sealed], delay: int | None) -> Iterator[int]:
        """Have Redis take messages, a bounded chunk a call; yields how many, once a chunk is accepted.

        Whatever is raised half-way says how many were accepted before.
        """
        accepted = 0
        try:
            for chunk in chunks(sealed, itemgetter(2)):
                self.accept(chunk, delay)
                accepted += len(chunk)
                yield len(chunk)
        except NotAccepted as error:
            error.accepted = accepted
            error.add_note(
                f"The first {accepted:,} messages were accepted; of the {error.unknown:,} after them all or none."
            )
            raise
        except Exception as error:
            error.add_note(f"The first {accepted:,} messages were accepted, the others were not sent.")
            raise

    def accept(
        self, sealed: list[Sealed], delay: int | None, *, marked: bool = False, pauses: Sequence[float] = _PAUSES
    ) -> None:
        """Have Redis take messages, all or none, each queue's in their order.

        Ids that are `marked` are taken once for as long as their marks stand. Raises `NotAccepted`, of a Redis that
        does not answer after a try behind each of the pauses.
        """
        ns, wait = self.namespace, self._real_ms(delay)
        queues: dict[str, list[str | bytes]] = {}
        for queue, id, encoded in sealed:
            queues.setdefault(queue, []).extend((id, encoded))
        asked = [keys.sender(ns, _sender.name), keys.awaited(ns)]
        args: list[Any] = [keys.wake(ns), "" if wait is None else wait, str(uuid.uuid4()), _CALL_REMEMBERED]
        args += [len(queues), int(MARKED.total_seconds())]
        for queue, messages in queues.items():
            asked += [keys.queue(ns, queue), keys.bodies(ns, queue), keys.due(ns, queue)]
            args += [queue, len(messages) // 2, *messages]
        asked += [keys.outbox(ns)] if marked else []
        self._insist(lambda: self.own_scripts.enqueue(keys=asked, args=args), len(sealed), pauses)

    def _insist(self, ask: Callable[[], T], messages: int, pauses: Sequence[float]) -> T:
        for pause in (*pauses, None):
            try:
                return ask()
            except redis.RedisError as error:
                # LOADING is a connection's error; BUSY, somebody's long script, passes as that does.
                passes = isinstance(error, (redis.ConnectionError, redis.TimeoutError)) or str(error).startswith("BUSY")
                refused = refusal(error)
                if refused or not passes:
                    raise NotAccepted(refused or f"Redis refused the message: {error}", unknown=messages) from error
                if pause is None:
                    waited = f"within {sum(pauses):.1f} s of tries"
                    raise NotAccepted(f"Redis did not answer {waited}: {error}", unknown=messages) from error
                time.sleep(pause)
        raise AssertionError("the last pause is None")

    @staticmethod
    def _real_ms(delay: int | None) -> int | None:
        return None if delay is None else int(delay / clock.rate)

    def presume_dead(self, worker_id: str, queues: Iterable[str]) -> int:
        """Return what a worker that is known to have ended held, to the front of its queues; returns how many."""
        return reap(self.client, self.own_scripts, self.namespace, worker_id, queues).returned


class _Sender(threading.local):
    """Calls of one thread come one after the other, so that its last one is all that Redis need remember.

    A fork inherits its parent's name, as do its siblings, which send at the same time: each draws its own. Whether this
    is one is asked at each call, since a server that forks its workers itself (uWSGI) calls no hook of Python's.
    """

    def __init__(self) -> None:
        self._draw()

    def _draw(self) -> None:
        self._process, self._name = os.getpid(), str(uuid.uuid4())

    @property
    def name(self) -> str:
        if self._process != os.getpid():
            self._draw()
        return self._name


_sender = _Sender()
