"""Send by name from a service that does not have the application's code: `fleet.connect(url).send("actor", …)`.

Workers publish a catalogue of their actors in Redis; a name or an argument that is not in it is refused here, before
anything is sent. Not guaranteed: that the catalogue is that of every worker; during a deploy it is the newest one's.
"""

from __future__ import annotations

import inspect
import json
from typing import Any

from dramatiq import Message

from fleet.broker import FleetBroker, keys
from fleet.errors import ArgumentsInvalid, NotDeclared


class Connection:
    """Sends to a fleet's queues. The catalogue is read at the first send, and again for a name that is not in it."""

    def __init__(self, broker: FleetBroker) -> None:
        self._broker = broker
        self._catalogue: dict[str, dict[str, Any]] = {}

    def send(self, actor: str, *args: Any, **kwargs: Any) -> Message[Any]:
        """Send a message to an actor by its name.

        Raises `NotDeclared` for a name that no worker published, `ArgumentsInvalid` for arguments its function does not
        take, `MessageTooLarge`, or `NotAccepted`.
        """
        if actor not in self._catalogue:
            self._catalogue = read_catalogue(self._broker)
        known = self._catalogue.get(actor)
        if known is None:
            raise NotDeclared("actor", actor, self._catalogue)
        _require_fit(actor, known["parameters"], args, kwargs)
        return self._broker.enqueue(
            Message(queue_name=known["queue"], actor_name=actor, args=args, kwargs=kwargs, options={})
        )


def connect(url: str, *, namespace: str = "dramatiq") -> Connection:
    """A connection to the fleet on this Redis; opens nothing yet."""
    return Connection(FleetBroker(url=url, namespace=namespace, middleware=[]))


def publish_catalogue(broker: FleetBroker) -> None:
    """Say which actors this process knows, and what each takes."""
    entries = {
        name: json.dumps({"queue": actor.queue_name, "parameters": _parameters(actor.fn)})
        for name, actor in broker.actors.items()
    }
    if entries:
        broker.client.hset(keys.catalogue(broker.namespace), mapping=entries)  # type: ignore[arg-type]


def read_catalogue(broker: FleetBroker) -> dict[str, dict[str, Any]]:
    """Actor -> its queue and parameters, as workers published them."""
    raw = broker.client.hgetall(keys.catalogue(broker.namespace))
    return {name.decode(): json.loads(entry) for name, entry in raw.items()}  # type: ignore[union-attr]


def _parameters(fn: Any) -> list[dict[str, Any]]:
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
