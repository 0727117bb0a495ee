"""A process that ran a suspect and fell silent, as a reaper finds it: with others, or by itself."""

from __future__ import annotations

from datetime import timedelta

import pytest
import redis

from fleet.broker import keys
from fleet.broker.reaper import ALONE, Reaper
from fleet.broker.scripts import Scripts
from tests.broker.station import QUEUE, Station
from tests.broker.turns import Turns, fetched
from tests.waiting import wait_until


@pytest.mark.parametrize(("together", "deaths"), [(1, 1), (3, 0)])
def test_who_fell_silent_by_itself_is_blamed_and_of_several_at_once_none_is(
    together: int, deaths: int, station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    actor = station.actor(lambda: None, actor_name="nothing")
    for _ in range(together):
        actor.send()
    scripts = Scripts(redis_client)
    for number in range(together):
        assert len(fetched(Turns(redis_client, scripts, namespace, f"{ALONE}{number}").take(1))) == 1
    told: list[str] = []
    reaper = Reaper(
        redis_client,
        scripts,
        namespace,
        [QUEUE],
        lost_after=timedelta(seconds=0.6),
        isolating=True,
        lost_alone=lambda: told.append("lost"),
    )

    def all_set_apart() -> bool:
        reaper.look()
        return redis_client.llen(keys.suspects(namespace, QUEUE)) == together

    wait_until(all_set_apart, 10)
    assert redis_client.hlen(keys.deaths(namespace, QUEUE)) == deaths
    assert redis_client.hlen(keys.losses(namespace, QUEUE)) == together
    assert len(told) == together
