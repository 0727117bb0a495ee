"""What a person does to an entry of the schedule: fire it now, pause it, resume it. Each is a line in its ledger.

The beat's script looks whether an entry is paused in the very step that judges its slots, every second: a pause holds
from the next slot on, and slots that come meanwhile end as `paused`, for good. Of an elastic entry no chain begins
another chunk either: its allowance is none (`fleet.allowance`), whoever decides. Firing by hand is beside the schedule:
it works on a paused entry too, has an id of its own, and neither reads nor moves the entry's mark.

Not guaranteed: that a slot which came while the entry was paused ends as `paused` if no beat led then; it is judged
when one leads, by what holds then. On failure: what redis-py raises. A fire whose reply was lost may have been taken;
the ledger says.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import redis

from fleet import wire
from fleet.app import App
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.declarations import Entry
from fleet.ledger import LEDGER_LENGTH, Event


@dataclass(frozen=True)
class Pause:
    """By whom an entry was paused, when (night time), and why."""

    by: str
    at: datetime
    because: str

    @property
    def told(self) -> str:
        """By whom, since when and why, in words."""
        return f"paused by {self.by} since {self.at:%Y-%m-%d %H:%M} UTC: {self.because}"


def fire_now(app: App, broker: FleetBroker, entry: Entry, *, by: str, because: str) -> str:
    """Send the entry's message now; returns its id. It expires as a slot of this instant would.

    Raises what redis-py raises when Redis does not take it.
    """
    ns, now = broker.namespace, clock.now()
    message_id = f"{entry.name}@now-{uuid.uuid4()}"
    actor = app.actor(entry.actor)
    options: dict[str, Any] = {
        "redis_message_id": message_id,
        wire.ENTRY: entry.name,
        wire.NONCE: uuid.uuid4().hex,
        wire.EXPIRES_AT: wire.to_ms(now + entry.expires),
    }
    message = actor.message_with_options(**options).copy(message_id=message_id)
    queue = message.queue_name
    broker.emit_before("enqueue", message, None)
    broker.own_scripts.fire_now(
        keys=[
            *(keys.runs_by_hand(ns), keys.ledger(ns, entry.name), keys.queue(ns, queue), keys.bodies(ns, queue)),
            keys.awaited(ns),
        ],
        args=[
            *(entry.name, message_id, message.encode(), wire.to_ms(now), by, because),
            *(LEDGER_LENGTH, keys.wake(ns), queue),
        ],
    )
    broker.emit_after("enqueue", message, None)
    return message_id


def pause(broker: FleetBroker, entry: str, *, by: str, because: str) -> Pause | None:
    """Pause an entry; returns how it was paused before, which the new reason replaces."""
    before = paused(broker.client, broker.namespace).get(entry)
    told = json.dumps({"by": by, "at": clock.now().isoformat(), "because": because})
    with broker.client.pipeline(transaction=True) as pipe:
        pipe.hset(keys.paused(broker.namespace), entry, told)
        _note(pipe, broker.namespace, entry, "pause", by, because)
        pipe.execute()
    return before


def resume(broker: FleetBroker, entry: str, *, by: str, because: str) -> Pause | None:
    """Resume an entry; returns how it was paused, None if it was not, and then nothing is changed."""
    before = paused(broker.client, broker.namespace).get(entry)
    if before is None:
        return None
    with broker.client.pipeline(transaction=True) as pipe:
        pipe.hdel(keys.paused(broker.namespace), entry)
        _note(pipe, broker.namespace, entry, "resume", by, because)
        pipe.execute()
    return before


def paused(client: redis.Redis, namespace: str, entries: Iterable[str] | None = None) -> dict[str, Pause]:
    """The entries that are paused; one whose note cannot be read is paused by "?" all the same."""
    found: dict[bytes, bytes] = client.hgetall(keys.paused(namespace))  # type: ignore[assignment]
    wanted = None if entries is None else set(entries)
    told = {name.decode(errors="replace"): pause_of(note) for name, note in found.items()}
    return {name: note for name, note in told.items() if wanted is None or name in wanted}


def pause_of(note: bytes) -> Pause:
    """A pause as it stands in Redis."""
    try:
        told = json.loads(note)
        return Pause(str(told["by"]), datetime.fromisoformat(told["at"]), str(told["because"]))
    except (ValueError, KeyError, TypeError):
        return Pause("?", wire.from_ms(0), note.decode(errors="replace")[:200])


def _note(pipe: redis.client.Pipeline, namespace: str, entry: str, event: Event, by: str, because: str) -> None:
    at = wire.to_ms(clock.now())
    fields: dict[str, str | int] = {"verdict": event, "from": at, "to": at, "count": 0, "by": by, "because": because}
    pipe.xadd(keys.ledger(namespace, entry), fields, maxlen=LEDGER_LENGTH, approximate=True)  # type: ignore[arg-type]
