"""Whatever lies in a queue, every message gets its end and the sound ones run."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.broker import keys
from fleet.workers import other_release
from tests.broker.station import QUEUE, Station
from tests.fuzz.changed import changed_bytes, changed_json

SOUND: dict[str, Any] = {
    "queue_name": QUEUE,
    "actor_name": "note",
    "args": [1, {"deep": [1, 2, {"er": None}]}],
    "kwargs": {},
    "options": {
        "redis_message_id": "m",
        "retries": 1,
        "traceback": "ValueError",
        "entry": "e",
        "slot": 1,
        "nonce": "n",
        "expires_at": 2**45,
        "origin": 1,
        "asked_at": 1,
        "eta": 1,
        "time_limit": 1000,
        "max_age": 2**45,
        "lost": "cut off",
        "delivery": "w:1",
        "hook_failures": 1,
        "left": 1,
        "max_retries": 0,
    },
    "message_id": "m",
    "message_timestamp": 1,
}
BODIES = st.lists(
    changed_json(SOUND).map(lambda value: json.dumps(value).encode()) | changed_bytes([json.dumps(SOUND).encode()]),
    min_size=40,
    max_size=120,
)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no release can run is left for two seconds instead of half an hour."""
    monkeypatch.setattr(other_release, "LEFT_FOR", timedelta(seconds=2))


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(bodies=BODIES)
def test_every_message_ends_and_the_sound_ones_run(station: Station, bodies: list[bytes]) -> None:
    ran: list[str] = []
    if "sound" not in station.broker.actors:
        station.actor(lambda *_: None, actor_name="note")
        station.broker.heard = ran  # type: ignore[attr-defined]
        station.actor(lambda name: station.broker.heard.append(name), actor_name="sound")  # type: ignore[attr-defined]
        station.work(threads=4)
    heard: list[str] = station.broker.heard  # type: ignore[attr-defined]
    before, client, ns = len(heard), station.broker.client, station.namespace
    for number, body in enumerate(bodies):
        id = f"{before}-{number}"
        client.hset(keys.bodies(ns, QUEUE), id, body)
        client.rpush(keys.queue(ns, QUEUE), id)
        if number % 10 == 0:
            station.broker.get_actor("sound").send(id)
    # A changed message may ask for a delay or a retry; whatever is left then waits for a time that it names itself.
    station.until_empty(60)
    assert len(heard) - before == -(-len(bodies) // 10)
