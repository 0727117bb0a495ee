"""Calls of the world outside under a key: who waits for whose limit, and what is called while Redis does not answer."""

from __future__ import annotations

from datetime import timedelta

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from books import clients
from fleet import app as application
from fleet import parking
from fleet.app import process_broker
from fleet.broker import keys
from fleet.errors import RetryLater
from fleet.quota import NoPlace
from tests.conftest import ROOT, Environment


@pytest.fixture(autouse=True)
def books(environment: Environment) -> None:
    application.load(ROOT)


def call(key: str) -> bool:
    with clients.limited(key):
        return True


def meets_a_limit() -> None:
    with pytest.raises(RetryLater) as met, clients.limited(clients.MODEL):
        raise RetryLater("429", timedelta(seconds=30))
    assert met.value.key is not None
    parking.park(process_broker(), met.value.key, met.value.after)  # as the middleware does


def test_a_limit_that_batch_meets_parks_no_person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.quota.for_people", lambda: False)
    meets_a_limit()
    with pytest.raises(parking.Parked, match="model for batch is parked"):
        call(clients.MODEL)
    monkeypatch.setattr("fleet.quota.for_people", lambda: True)
    assert call(clients.MODEL)


def test_a_limit_that_a_person_meets_parks_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.quota.for_people", lambda: True)
    meets_a_limit()
    for people in (True, False):
        monkeypatch.setattr("fleet.quota.for_people", lambda people=people: people)
        with pytest.raises(parking.Parked, match="model is parked"):
            call(clients.MODEL)


def test_what_has_no_quota_is_parked_by_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.quota.for_people", lambda: False)
    with pytest.raises(RetryLater) as met, clients.limited(clients.PAYMENTS):
        raise RetryLater("429", timedelta(seconds=30))
    assert met.value.key == clients.PAYMENTS


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
