"""Whichever reply or request of a chain's life is lost on the wire, the chain is one, and its backlog is done."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
import redis

from fleet import app as application
from fleet.broker import FleetBroker
from fleet.chains import seed
from fleet.clock import clock
from fleet.settings import Settings
from middleware import default_order
from tests.broker.conftest import proxy as proxy
from tests.broker.proxy import Proxy
from tests.fleet.elastic_house import ENTRY, ElasticHouse, it_is
from tests.waiting import wait_until


@pytest.fixture
def two_at_night() -> Iterator[None]:
    it_is(2)
    yield
    clock.set_night(None)


@pytest.mark.parametrize("loss", ["lose_reply", "lose_request"])
def test_whatever_is_lost_a_chain_goes_on_once(
    proxy: Proxy, namespace: str, loss: str, two_at_night: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for nth in range(1, 9):
        settings = Settings(redis_url=proxy.url, namespace=f"{namespace}:{uuid.uuid4().hex[:6]}", database_url=None)
        broker = FleetBroker(lambda settings=settings: settings, middleware=default_order())  # type: ignore[misc]
        monkeypatch.setattr(application, "process_broker", lambda broker=broker: broker)
        monkeypatch.setattr(application, "settings", lambda settings=settings: settings)
        house = ElasticHouse(broker)
        house.backlog = 23
        house.lease(1)
        house.start(threads=3)
        getattr(proxy, loss)(nth)
        try:
            seed(broker, ENTRY, 1)
        except redis.RedisError:
            seed(broker, ENTRY, 1)  # as the next pass does
        try:
            wait_until(lambda house=house: house.backlog == 0 and not house.bodies(), 20)  # type: ignore[misc]
        finally:
            getattr(proxy, loss)(0)
            house.stop()
        assert sum(rows * times for rows, times in house.chunks.items()) == 23
        assert (house.most_at_once, house.chunks[5]) == (1, 4)
