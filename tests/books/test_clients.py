"""Calls of the world outside under a key while Redis does not answer: people call, batch finds no place."""

from __future__ import annotations

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from books import clients
from fleet import app as application
from fleet.app import process_broker
from fleet.broker import keys
from fleet.quota import NoPlace
from tests.conftest import ROOT, Environment


@pytest.fixture(autouse=True)
def books(environment: Environment) -> None:
    application.load(ROOT)


def call(key: str) -> bool:
    with clients.limited(key):
        return True


def test_while_redis_is_away_people_call_and_batch_gets_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = redis.Redis(port=1, retry=Retry(NoBackoff(), 0))  # as the fleet's clients: none waits for a second try
    monkeypatch.setitem(process_broker().__dict__, "client", nobody)
    assert call(clients.MODEL)
    monkeypatch.setattr("fleet.quota.for_people", lambda: False)
    with pytest.raises(NoPlace):
        call(clients.MODEL)
    assert call(clients.PAYMENTS), "what has no quota has nobody to ask"


def test_what_redis_refuses_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = process_broker()

    def refuses(*_: object) -> int:
        raise redis.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")

    monkeypatch.setattr(broker.client, "pttl", refuses)
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        call(clients.MODEL)
    assert not broker.client.exists(keys.quota(broker.namespace, clients.MODEL, "people"))
