"""A process that ran a suspect and fell silent, as a reaper finds it: with others, or by itself."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
import redis

from fleet.broker import keys
from fleet.broker.reaper import ALONE, Death, Reaper, reap
from fleet.broker.scripts import Scripts
from fleet.workers.verdicts import Verdicts
from tests.broker.station import QUEUE, Station
from tests.broker.turns import Turns, fetched
from tests.waiting import wait_until

SHORT = timedelta(seconds=0.6)


@pytest.fixture
def scripts(redis_client: redis.Redis) -> Scripts:
    return Scripts(redis_client)


def taken(client: redis.Redis, scripts: Scripts, namespace: str, worker: str) -> str:
    """The id of a message that this worker now holds."""
    ((id, _),) = fetched(Turns(client, scripts, namespace, worker).take(1))
    return id.decode()


def suspects(client: redis.Redis, namespace: str) -> list[str]:
    return [id.decode() for id in client.lrange(keys.suspects(namespace, QUEUE), 0, -1)]


def run_again(client: redis.Redis, namespace: str) -> None:
    """What waits to run alone is fetched next, as a runner of suspects would."""
    client.lmove(keys.suspects(namespace, QUEUE), keys.queue(namespace, QUEUE), "LEFT", "RIGHT")


@pytest.mark.parametrize(("together", "deaths"), [(1, 1), (3, 0)])
@pytest.mark.parametrize("queue", [QUEUE, "another-lane"])
def test_who_fell_silent_by_itself_is_blamed_and_of_several_at_once_none_is(
    queue: str,
    together: int,
    deaths: int,
    station: Station,
    redis_client: redis.Redis,
    scripts: Scripts,
    namespace: str,
) -> None:
    actor = station.actor(lambda: None, actor_name="nothing")
    for _ in range(together):
        actor.send()
    for number in range(together):
        taken(redis_client, scripts, namespace, f"{ALONE}{number}")
    reaper = Reaper(redis_client, scripts, namespace, [queue], lost_after=SHORT, isolating=True)

    def all_set_apart() -> bool:
        reaper.look()
        return len(suspects(redis_client, namespace)) == together

    wait_until(all_set_apart, 10)
    assert redis_client.hlen(keys.deaths(namespace, QUEUE)) == deaths
    assert redis_client.hlen(keys.losses(namespace, QUEUE)) == together


def test_every_supervisor_of_the_lane_runs_them_one_at_a_time_whoever_reaped(
    station: Station, redis_client: redis.Redis, scripts: Scripts, namespace: str
) -> None:
    station.actor(lambda: None, actor_name="nothing").send()
    another_host = Verdicts(station.broker, [QUEUE, "second"])
    for number in range(3):
        taken(redis_client, scripts, namespace, f"crew-{number}")
        reap(redis_client, scripts, namespace, f"crew-{number}", [QUEUE], isolating=True)
    waits = another_host.suspects()
    assert (waits.count, waits.one_at_a_time) == (1, False), "it ran beside others that are no suspects"

    run_again(redis_client, namespace)
    id = taken(redis_client, scripts, namespace, f"{ALONE}1")
    died = Death("SIGKILL", [(QUEUE, id)])
    reap(redis_client, scripts, namespace, f"{ALONE}1", [QUEUE], death=died, isolating=True)
    waits = another_host.suspects()
    assert (waits.count, waits.one_at_a_time) == (1, False), "it was seen whose doing it was"

    run_again(redis_client, namespace)
    taken(redis_client, scripts, namespace, f"{ALONE}2")
    unseen = Death("lost with others", seen=False)
    reap(redis_client, scripts, namespace, f"{ALONE}2", [QUEUE], death=unseen, isolating=True)
    waits = another_host.suspects()
    assert (waits.count, waits.one_at_a_time) == (1, True)
    assert 0 < redis_client.ttl(keys.one_at_a_time(namespace, QUEUE)) <= 60


def test_a_neighbour_of_a_death_that_is_lost_with_its_host_once_is_not_condemned_and_twice_it_is(
    station: Station, redis_client: redis.Redis, scripts: Scripts, namespace: str
) -> None:
    station.actor(lambda: None, actor_name="nothing").send()
    id = taken(redis_client, scripts, namespace, "one-of-the-crew")
    seen = Death("SIGKILL", [(QUEUE, id)])
    reap(redis_client, scripts, namespace, "one-of-the-crew", [QUEUE], death=seen, isolating=True)
    for number in (1, 2):
        assert suspects(redis_client, namespace) == [id]
        run_again(redis_client, namespace)
        taken(redis_client, scripts, namespace, f"{ALONE}{number}")
        reap(redis_client, scripts, namespace, f"{ALONE}{number}", [QUEUE], isolating=True)
    (letter,) = redis_client.hvals(keys.dead_details(namespace, QUEUE))
    assert json.loads(letter)["reason"] == "poison: killed 3 processes (SIGKILL, lost, lost)"
    assert suspects(redis_client, namespace) == []


def test_a_death_that_is_seen_condemns_after_one_that_nobody_saw(
    station: Station, redis_client: redis.Redis, scripts: Scripts, namespace: str
) -> None:
    station.actor(lambda: None, actor_name="nothing").send()
    id = taken(redis_client, scripts, namespace, f"{ALONE}1")
    reap(redis_client, scripts, namespace, f"{ALONE}1", [QUEUE], isolating=True)
    run_again(redis_client, namespace)
    taken(redis_client, scripts, namespace, f"{ALONE}2")
    died = Death("SIGSEGV", [(QUEUE, id)])
    reap(redis_client, scripts, namespace, f"{ALONE}2", [QUEUE], death=died, isolating=True)
    (letter,) = redis_client.hvals(keys.dead_details(namespace, QUEUE))
    assert json.loads(letter)["reason"] == "poison: killed 2 processes (lost, SIGSEGV)"


def test_of_thousands_lost_with_one_worker_each_is_told(
    redis_client: redis.Redis, scripts: Scripts, namespace: str
) -> None:
    many = [f"m{number}" for number in range(3_000)]
    redis_client.hset(keys.bodies(namespace, QUEUE), mapping=dict.fromkeys(many, "body"))
    redis_client.sadd(keys.acks(namespace, f"{ALONE}1", QUEUE), *many)
    found = reap(redis_client, scripts, namespace, f"{ALONE}1", [QUEUE], isolating=True)
    assert {one.id for one in found.apart} == set(suspects(redis_client, namespace)) == set(many)
