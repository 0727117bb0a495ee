"""Keys that are parked: a bank connection or a model that asked to be left alone until an instant.

`LaneRetries` parks the key of a `RetryLater`; a job asks with `check` before it calls, so that others of the same key
wait too, and other keys go on. A key is anybody's word for what is limited. Times are night durations.

Not guaranteed: that nobody calls while a key is parked; a job that already called is not stopped.
"""

from __future__ import annotations

from datetime import timedelta

from fleet import wire
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.errors import RetryLater

_SHORTEST = timedelta(milliseconds=50)  # real; under that a key with an expiry would be gone before anybody asks


class Parked(RetryLater):
    """Raised for who asks while a key is parked: it comes back by then, and parks nothing for longer."""


def park(broker: FleetBroker, key: str, after: timedelta) -> None:
    """Park a key for a night duration; the later end wins."""
    real = max(_SHORTEST, clock.to_real(after))
    name = keys.parked(broker.namespace, key)
    milliseconds = wire.duration_ms(real)
    if not broker.client.set(name, "1", px=milliseconds, nx=True) and broker.client.pttl(name) < milliseconds:
        broker.client.pexpire(name, milliseconds)


def check(key: str) -> None:
    """Raise `Parked` with this key while it is parked."""
    from fleet.app import process_broker

    broker = process_broker()
    left = broker.client.pttl(keys.parked(broker.namespace, key))
    if left > 0:
        after = timedelta(milliseconds=left) * clock.rate
        raise Parked(f"{key} is parked for another {after}", after, key=key)
