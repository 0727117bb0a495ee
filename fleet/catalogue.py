"""Send by name from a service that does not have the application's code: `fleet.connect(url).send("actor", …)`.

Workers publish a catalogue of their actors in Redis when they start and every hour after; a name or an argument that is
not in it is refused here, before anything is sent. An actor that no worker has published for a week is gone: it is
refused, and the next worker that publishes takes it off the list.

Not guaranteed: that the catalogue is that of every worker; during a deploy it is the newest one's. When no worker ran
for a week, everything is refused until one does.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import dramatiq
import redis
from dramatiq import Message

from fleet import wire
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.errors import ActorGone, ArgumentsInvalid, NotDeclared
from fleet.payloads import PayloadEncoder

GONE_AFTER = timedelta(days=7)  # real time, by the server's clock
_READ_AGAIN_AFTER = timedelta(hours=1)


class Connection:
    """Sends to a fleet's queues.

    The catalogue is read at the first send, again after an hour, and for a name that is not in it.
    """

    def __init__(self, broker: FleetBroker) -> None:
        self._broker = broker
        self._catalogue: dict[str, dict[str, Any]] = {}
        self._read_at = 0.0

    def send(self, actor: str, *args: Any, **kwargs: Any) -> Message[Any]:
        """Send a message to an actor by its name.

        Raises `NotDeclared` for a name that no worker published, `ActorGone` for one that none has published for a
        week, `ArgumentsInvalid` for arguments its function does not take, `MessageTooLarge`, or `NotAccepted`.
        """
        known = self._entry(actor)
        _require_fit(actor, known["parameters"], args, kwargs)
        return self._broker.enqueue(
            Message(queue_name=known["queue"], actor_name=actor, args=args, kwargs=kwargs, options={})
        )

    def _entry(self, actor: str) -> dict[str, Any]:
        old = clock.monotonic() - self._read_at > _READ_AGAIN_AFTER.total_seconds()
        if old or actor not in self._catalogue:
            self._catalogue, gone = _read(self._broker)
            self._read_at = clock.monotonic()
            if actor in gone:
                raise ActorGone(actor, _published(gone[actor]), GONE_AFTER)
        if actor not in self._catalogue:
            raise NotDeclared("actor", actor, self._catalogue)
        return self._catalogue[actor]


def connect(url: str, *, namespace: str = "dramatiq", payload_keys: Sequence[str] = ()) -> Connection:
    """A connection to the fleet on this Redis; opens nothing yet.

    `payload_keys` are the fleet's, where it encrypts what messages carry; they hold for the whole process.
    """
    if payload_keys:
        dramatiq.set_encoder(PayloadEncoder(lambda: payload_keys))
    return Connection(FleetBroker(url=url, namespace=namespace, middleware=[]))


def publish_catalogue(broker: FleetBroker) -> None:
    """Say which actors this process knows, and what each takes; takes off the list what nobody knows any more."""
    now = wire.to_ms(_server_now(broker))
    entries = {
        name: json.dumps({"queue": actor.queue_name, "parameters": parameters_of(actor.fn), "published": now})
        for name, actor in broker.actors.items()
    }
    if entries:
        broker.client.hset(keys.catalogue(broker.namespace), mapping=entries)  # type: ignore[arg-type]
    _prune(broker)


def _prune(broker: FleetBroker) -> None:
    key = keys.catalogue(broker.namespace)
    with broker.client.pipeline() as pipe:
        pipe.watch(key)  # type: ignore[no-untyped-call]
        _, gone = _read(broker)
        if gone:
            pipe.multi()
            pipe.hdel(key, *gone)
            try:
                pipe.execute()
            except redis.WatchError:
                return  # somebody publishes at this moment, and prunes after it


def read_catalogue(broker: FleetBroker) -> dict[str, dict[str, Any]]:
    """Actor -> its queue, its parameters and when it was last published, as workers published them lately."""
    return _read(broker)[0]


def _read(broker: FleetBroker) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """What is alive, and what is gone."""
    raw: Any = broker.client.hgetall(keys.catalogue(broker.namespace))
    entries = {name.decode(): json.loads(entry) for name, entry in raw.items()}
    oldest = _server_now(broker) - GONE_AFTER
    gone = {name: entry for name, entry in entries.items() if _published(entry) < oldest}
    return {name: entry for name, entry in entries.items() if name not in gone}, gone


def _published(entry: dict[str, Any]) -> datetime:
    return wire.from_ms(entry.get("published", 0))


def _server_now(broker: FleetBroker) -> datetime:
    seconds, micros = broker.client.time()
    return wire.from_ms(int(seconds) * 1000 + int(micros) // 1000)


def parameters_of(fn: Any) -> list[dict[str, Any]]:
    """A function's parameters as the catalogue has them: name, kind, and whether one must be given."""
    return [
        {"name": p.name, "kind": p.kind.name, "needed": p.default is p.empty}
        for p in inspect.signature(fn).parameters.values()
    ]


def _require_fit(actor: str, parameters: list[dict[str, Any]], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    signature = inspect.Signature(
        [
            inspect.Parameter(
                p["name"],
                inspect._ParameterKind[p["kind"]],
                default=inspect.Parameter.empty if p["needed"] or p["kind"].startswith("VAR_") else None,
            )
            for p in parameters
        ]
    )
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentsInvalid(f"{actor}{signature} cannot be sent these arguments: {error}.") from None
