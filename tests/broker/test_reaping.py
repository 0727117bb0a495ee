"""Who is gone is reaped, who is alive is not, and who comes back too late changes nothing."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import dramatiq
import pytest
import redis
from dramatiq import Message
from structlog.testing import capture_logs

from fleet.broker import keys
from fleet.broker.reaper import Reaper, reap
from fleet.broker.scripts import Scripts
from tests.broker.conftest import OwnRedis
from tests.broker.process import Jobs, declare, process
from tests.broker.station import QUEUE, Station, places, stock
from tests.waiting import wait_until

Keep = Callable[[Station], Station]


@pytest.fixture
def jobs(redis_client: redis.Redis, namespace: str) -> Jobs:
    return Jobs(redis_client, namespace)


def reaper_of(client: redis.Redis, namespace: str, seconds: float = 0.9) -> Reaper:
    lost_after = timedelta(seconds=seconds)
    return Reaper(client, Scripts(client), namespace, [QUEUE], lost_after=lost_after, stock_lost_after=lost_after)


def test_a_stopped_stock_worker_that_resumes_deletes_the_second_live_delivery_of_its_message(
    jobs: Jobs, redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    other = stock(redis_url, namespace, maintenance_chance=1_000_000, heartbeat_timeout=1_000)
    with process("stock", redis_url, namespace, threads=2) as worker:
        declare(other, jobs).send("x")
        wait_until(lambda: jobs.runs("x") == 1)
        worker.send_signal(signal.SIGSTOP)
        # A fetch of another queue's worker does the maintenance: the message is in its list again.
        wait_until(lambda: other.do_fetch(QUEUE, 0) == [] and redis_client.llen(keys.queue(namespace, QUEUE)))
        worker.send_signal(signal.SIGCONT)
        wait_until(lambda: jobs.runs("x") == 2)
        jobs.release("x", 1)
        wait_until(lambda: places(redis_client, namespace) == {})
        assert jobs.ended("x") == 1  # the second run is under way, and nothing stands for it


def test_our_stopped_worker_that_resumes_takes_a_new_id_and_its_late_end_changes_nothing(
    jobs: Jobs, redis_url: str, redis_client: redis.Redis, namespace: str, stations: Keep
) -> None:
    station = stations(Station(redis_url, namespace))
    actor = declare(station.broker, jobs)
    reaper = reaper_of(redis_client, namespace)
    with process("ours", redis_url, namespace, threads=2) as worker:
        actor.send("x")
        wait_until(lambda: jobs.runs("x") == 1)
        ((old_id,),) = places(redis_client, namespace).values()
        worker.send_signal(signal.SIGSTOP)
        wait_until(lambda: reaper.look() == 1)
        assert list(places(redis_client, namespace).values()) == [["waiting"]]
        worker.send_signal(signal.SIGCONT)
        wait_until(lambda: jobs.runs("x") == 2)
        ((new_id,),) = places(redis_client, namespace).values()
        assert new_id != old_id
        jobs.release("x", 1)
        wait_until(lambda: jobs.ended("x") == 1)
        actor.send("y")  # it goes on working, and by the end of this its late end has been refused
        wait_until(lambda: jobs.runs("y") == 1)
        jobs.release("y", 1)
        wait_until(lambda: list(places(redis_client, namespace).values()) == [[new_id]])
        assert redis_client.hlen(keys.bodies(namespace, QUEUE)) == 1
        jobs.release("x", 2)
        wait_until(lambda: places(redis_client, namespace) == {})


def test_the_late_end_of_a_stopped_worker_does_not_end_what_another_worker_runs_meanwhile(
    jobs: Jobs, redis_url: str, redis_client: redis.Redis, namespace: str, stations: Keep
) -> None:
    station = stations(Station(redis_url, namespace))
    actor = declare(station.broker, jobs)
    with process("ours", redis_url, namespace) as stopped:
        actor.send("x")
        wait_until(lambda: jobs.runs("x") == 1)
        stopped.send_signal(signal.SIGSTOP)
        here = station.work(threads=1, prefetch=1)
        wait_until(lambda: jobs.runs("x") == 2)
        stopped.send_signal(signal.SIGCONT)
        jobs.release("x", 1)
        wait_until(lambda: jobs.ended("x") == 1)
        actor.send("y")
        wait_until(lambda: jobs.runs("y") == 1)  # the one that was stopped: this one's thread is taken
        assert ["waiting"] not in places(redis_client, namespace).values()
        assert [here.pump.worker_id] in places(redis_client, namespace).values()
        jobs.release("x", 2)
        jobs.release("y", 1)
        station.until_empty()
    assert here.ends == {"done": 1}
    assert jobs.runs("x") == 2


def pause_by_command(server: OwnRedis) -> None:
    with server.client as admin:
        admin.client_pause(1_500)


def pause_by_signal(server: OwnRedis) -> None:
    server.signal(signal.SIGSTOP)
    time.sleep(1.5)
    server.signal(signal.SIGCONT)


@pytest.mark.parametrize("pause", [pause_by_command, pause_by_signal])
def test_after_a_pause_of_redis_stock_reaps_the_living_and_we_reap_the_dead_alone(
    pause: Callable[[OwnRedis], None], own_redis: OwnRedis, own_station: Station
) -> None:
    options = {"maintenance_chance": 1_000_000, "heartbeat_timeout": 1_000}
    holds, back_first = (stock(own_redis.url, "stock", **options) for _ in range(2))
    holds.enqueue(dramatiq.Message(QUEUE, "nobody", (), {}, {}))
    held = holds.do_fetch(QUEUE, 1)
    assert held and not back_first.do_fetch(QUEUE, 1)
    pause(own_redis)
    back_first.client.ping()  # answered when the pause is over; a fetch tells the time before it waits
    assert back_first.do_fetch(QUEUE, 1) == held, "its holder lives, and was silent because Redis was"

    scripts = own_station.broker.own_scripts
    alive = ["alive", 1, "[]"]
    asked = [keys.tombstone("own", "alive"), keys.beats("own"), keys.heartbeats("own"), keys.workers("own")]
    scripts.beat(keys=asked, args=alive)
    reaper = reaper_of(own_redis.client, "own")
    with capture_logs() as logs:
        reaper.look()
        reaper.look()
        pause(own_redis)
        reaper.look()  # comes back before the living one's own beat does
        assert not [line for line in logs if line["event"] == "worker_reaped"]
        scripts.beat(keys=asked, args=alive)
        assert own_station.broker.client.hget(keys.beats("own"), "alive") == b"2"
        wait_until(lambda: reaper.look() or [line for line in logs if line["event"] == "worker_reaped"])


def test_a_redis_that_takes_no_writes_for_longer_than_a_silence_has_nobody_reaped_when_it_takes_them_again(
    own_redis: OwnRedis, own_station: Station
) -> None:
    own_station.actor(print)
    worker = own_station.work()
    reaper = reaper_of(own_redis.client, "own", 0.6)
    with own_redis.client as admin, capture_logs() as logs:
        wait_until(lambda: worker.pump.turned_at)
        reaper.look()
        admin.config_set("min-replicas-to-write", 1)
        until = time.monotonic() + 1
        while time.monotonic() < until:
            with suppress(redis.RedisError):
                reaper.look()
        admin.config_set("min-replicas-to-write", 0)
        reaper.look()  # comes before anybody's beat does
        assert not admin.exists(keys.tombstone("own", worker.pump.worker_id))
    assert not [line for line in logs if line["event"] == "worker_reaped"]


def test_a_reaping_that_is_refused_begins_all_silences_anew(own_redis: OwnRedis, own_station: Station) -> None:
    asked = [keys.tombstone("own", "gone"), keys.beats("own"), keys.heartbeats("own"), keys.workers("own")]
    own_station.broker.own_scripts.beat(keys=asked, args=["gone", 1, "[]"])
    with own_redis.client as admin:
        admin.execute_command("ACL", "SETUSER", "night", "on", ">pw", "~own:*", "+@all")
        client = redis.Redis.from_url(own_redis.url.replace("redis://", "redis://night:pw@"))
        reaper = reaper_of(client, "own", 0.3)

        def refused() -> bool:
            with suppress(redis.RedisError):
                reaper.look()
                return False
            return True

        wait_until(refused)  # it may not publish
        admin.execute_command("ACL", "SETUSER", "night", "&own:*")
        reaper.look()
        assert not admin.exists(asked[0])
        wait_until(lambda: reaper.look() or admin.exists(asked[0]))
        client.close()


def test_workers_that_run_jobs_through_a_pause_of_redis_run_each_once(own_redis: OwnRedis, stations: Keep) -> None:
    ran: list[int] = []

    def slow(number: int) -> None:
        ran.append(number)
        time.sleep(0.5)

    crew = [stations(Station(own_redis.url, "own")) for _ in range(3)]
    with capture_logs() as logs:
        for station in crew:
            actor = station.actor(slow)
            station.work(threads=2)
        for number in range(30):
            actor.send(number)
        wait_until(lambda: len(ran) >= 6)
        pause_by_signal(own_redis)
        crew[0].until_empty()
    assert sorted(ran) == list(range(30))
    assert not [line for line in logs if line["event"] in ("worker_reaped", "worker_fenced", "end_was_stale")]


def test_what_a_killed_worker_held_is_at_the_front_in_its_old_order(
    jobs: Jobs, redis_url: str, redis_client: redis.Redis, namespace: str, stations: Keep
) -> None:
    station = stations(Station(redis_url, namespace))
    actor = declare(station.broker, jobs)
    sent = [actor.send(f"job {number}").options["redis_message_id"].encode() for number in range(12)]
    with process("ours", redis_url, namespace, threads=3) as worker:
        wait_until(lambda: jobs.runs("job 2") == 1)
        for number in range(2):  # so that what it holds was fetched in several turns
            jobs.release(f"job {number}", 1)
        wait_until(lambda: jobs.runs("job 4") == 1 and jobs.ended("job 1") == 1)
        wait_until(lambda: redis_client.llen(keys.queue(namespace, QUEUE)) == 4)
        worker.kill()
    (dead,) = (id.decode() for id in redis_client.hkeys(keys.workers(namespace)))
    assert station.broker.presume_dead(dead, [QUEUE]) == 6
    assert redis_client.lrange(keys.queue(namespace, QUEUE), 0, -1) == sent[2:]
    assert station.broker.presume_dead(dead, [QUEUE]) == 0


def test_a_worker_of_another_lane_is_reaped_with_its_own_queues(
    jobs: Jobs, redis_url: str, redis_client: redis.Redis, namespace: str, stations: Keep
) -> None:
    station = stations(Station(redis_url, namespace))
    actor = declare(station.broker, jobs)
    other_lane = Reaper(redis_client, Scripts(redis_client), namespace, ["other"], lost_after=timedelta(seconds=0.6))
    with process("ours", redis_url, namespace) as worker:
        actor.send("x")
        wait_until(lambda: jobs.runs("x") == 1)
        worker.kill()
    wait_until(lambda: other_lane.look() == 1)
    assert list(places(redis_client, namespace).values()) == [["waiting"]]


def test_reaping_needs_no_dangerous_command_and_neither_keys_nor_scan(own_redis: OwnRedis, stations: Keep) -> None:
    with own_redis.client as admin:
        admin.execute_command("ACL", "SETUSER", "night", "on", ">pw", "~own:*", "&own:*", "+@all", "-@dangerous")
        url = own_redis.url.replace("redis://", "redis://night:pw@")
        station = stations(Station(url, "own"))
        ran: list[int] = []
        note: Any = station.actor(ran.append, actor_name="note")
        note.send(1)
        asked = [keys.queue("own", QUEUE), keys.acks("own", "gone", QUEUE), keys.held("own", "gone", QUEUE)]
        (id,) = admin.lrange(asked[0], 0, -1)
        admin.lpop(asked[0])
        admin.sadd(asked[1], id)
        admin.zadd(asked[2], {id: 1})
        admin.config_resetstat()
        assert reap(station.broker.client, station.broker.own_scripts, "own", "gone", [QUEUE]).returned == 1
        station.work()
        note.send_with_options(args=(2,), delay=10)
        wait_until(lambda: sorted(ran) == [1, 2])
        station.stop()
        used = admin.info("commandstats")
        assert "cmdstat_evalsha" in used
        assert not {"cmdstat_keys", "cmdstat_scan"} & set(used)
        assert admin.execute_command("ACL", "LOG") == []


def test_a_stock_producer_that_falls_silent_is_no_warning_and_gets_no_tombstone(
    redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    producer = stock(redis_url, namespace)
    producer.enqueue(Message(QUEUE, "nobody", (), {}, {}))
    reaper = reaper_of(redis_client, namespace, 0.3)
    with capture_logs() as logs:
        wait_until(lambda: reaper.look() or [line for line in logs if line["event"] == "stock_silent"])
    assert [(line["log_level"], line["worker"]) for line in logs] == [("debug", producer.broker_id)]
    assert redis_client.exists(keys.tombstone(namespace, producer.broker_id)) == 0
    assert redis_client.zscore(keys.heartbeats(namespace), producer.broker_id) is not None


def test_a_stock_id_that_was_silent_for_a_day_is_taken_off_the_record(
    redis_client: redis.Redis, namespace: str
) -> None:
    now = time.time() * 1000
    redis_client.zadd(keys.heartbeats(namespace), {"an hour": now - 3_600_000, "two days": now - 2 * 86_400_000})
    reaper = reaper_of(redis_client, namespace, 0.3)
    wait_until(lambda: reaper.look() or redis_client.zcard(keys.heartbeats(namespace)) == 1)
    assert redis_client.zscore(keys.heartbeats(namespace), "an hour") is not None


def test_what_a_dead_stock_worker_held_of_a_queue_that_is_not_ours_is_left_for_stocks_own_maintenance(
    redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    gone = stock(redis_url, namespace)
    gone.declare_queue("theirs")
    for name in (QUEUE, "theirs"):
        gone.enqueue(Message(name, "nobody", (), {}, {}))
        assert len(gone.do_fetch(name, 1)) == 1
    reaper = reaper_of(redis_client, namespace, 0.3)
    with capture_logs() as logs:
        wait_until(lambda: reaper.look() == 1)
    assert [(line["event"], line["log_level"]) for line in logs] == [("worker_reaped", "warning")]
    assert redis_client.llen(keys.queue(namespace, QUEUE)) == 1
    alive = stock(redis_url, namespace, maintenance_chance=1_000_000, heartbeat_timeout=100)
    wait_until(lambda: alive.do_fetch("theirs", 1))


def test_a_silent_worker_of_ours_that_held_nothing_is_a_warning_and_gets_its_tombstone(
    redis_url: str, redis_client: redis.Redis, namespace: str, stations: Keep
) -> None:
    stations(Station(redis_url, namespace)).broker.own_scripts.beat(
        keys=[
            keys.tombstone(namespace, "ours"),
            keys.beats(namespace),
            keys.heartbeats(namespace),
            keys.workers(namespace),
        ],
        args=["ours", 1, "[]"],
    )
    reaper = reaper_of(redis_client, namespace, 0.3)
    with capture_logs() as logs:
        wait_until(lambda: reaper.look() or redis_client.exists(keys.tombstone(namespace, "ours")))
    assert [(line["event"], line["log_level"], line["returned"]) for line in logs] == [("worker_reaped", "warning", 0)]
    assert redis_client.zcard(keys.heartbeats(namespace)) == 0


def test_what_dead_stock_workers_waited_with_goes_back_to_its_delay_queue_however_often_and_wakes_the_queue(
    redis_client: redis.Redis, namespace: str
) -> None:
    delays = keys.delayed(QUEUE)
    redis_client.hset(keys.bodies(namespace, delays), "later", "body")
    with redis_client.pubsub() as heard:
        heard.subscribe(keys.wake(namespace))
        assert heard.get_message(timeout=5) is not None
        for number in range(4):
            redis_client.sadd(keys.acks(namespace, f"theirs-{number}", delays), "later")
            found = reap(
                redis_client, Scripts(redis_client), namespace, f"theirs-{number}", [QUEUE], stock=True, isolating=True
            )
            assert (found.returned, found.apart) == (1, ())
            assert redis_client.lpop(keys.queue(namespace, delays)) == b"later"
        told = {message["data"] for message in iter(lambda: heard.get_message(timeout=0.5), None)}
    assert told == {QUEUE.encode()}
    assert not redis_client.exists(*[of(namespace, delays) for of in (keys.suspects, keys.losses, keys.deaths)])
