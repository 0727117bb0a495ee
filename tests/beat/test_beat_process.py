"""Replicas as real processes, and what they do when one is killed, stopped, or falls ill, and when Redis goes away."""

from __future__ import annotations

import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from fleet import embedded
from fleet.broker import keys
from tests.beat.replicas import SCHEDULE, TTL, Beats, Replica
from tests.broker.conftest import OwnRedis
from tests.middleware.ingest import Ingest
from tests.ports import free_port
from tests.waiting import wait_until


@pytest.fixture
def beats(tmp_path: Path, redis_url: str, namespace: str) -> Iterator[Beats]:
    made = Beats(tmp_path, redis_url, namespace)
    yield made
    made.stop()


def seconds_until(condition: Callable[[], object], limit: float) -> float:
    started = time.monotonic()
    wait_until(condition, limit)
    return time.monotonic() - started


@pytest.mark.alone
def test_a_killed_leader_is_followed_within_its_term_and_two_seconds_and_no_slot_fires_twice(beats: Beats) -> None:
    beats.start(2)
    leader, follower = beats.leader_and_follower()
    wait_until(lambda: beats.fired(leader.token) >= 2)
    leader.process.send_signal(signal.SIGKILL)
    took = seconds_until(lambda: beats.fired(follower.token), 15)
    assert took <= (TTL + timedelta(seconds=2)).total_seconds()
    wait_until(lambda: beats.fired(follower.token) >= 2)
    follower.process.send_signal(signal.SIGKILL)
    follower.process.wait()
    beats.require_one_verdict_a_slot_and_one_message_a_fired_slot()
    assert {line["epoch"] for line in beats.lines(leader.token)} == {"1"}
    assert {line["epoch"] for line in beats.lines(follower.token)} == {"2"}


@pytest.mark.alone
def test_a_stopped_leader_hands_over_within_a_second_and_exits_clean(beats: Beats) -> None:
    beats.start(2)
    leader, follower = beats.leader_and_follower()
    leader.process.terminate()
    took = seconds_until(lambda: beats.client.get(keys.leader(beats.namespace)) == follower.token.encode(), 10)
    assert took < 1
    assert leader.process.wait(10) == 0
    wait_until(lambda: beats.fired(follower.token) >= 2)
    follower.process.terminate()
    assert follower.process.wait(10) == 0
    assert beats.client.get(keys.leader(beats.namespace)) is None, "the last one left the lock behind"
    beats.require_one_verdict_a_slot_and_one_message_a_fired_slot()


def test_a_leader_that_was_suspended_past_its_term_fires_nothing_when_it_wakes(beats: Beats) -> None:
    beats.start(2)
    leader, follower = beats.leader_and_follower()
    wait_until(lambda: beats.fired(leader.token))
    leader.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: beats.fired(follower.token) >= 2)
    before = len(beats.lines(leader.token))
    leader.process.send_signal(signal.SIGCONT)
    wait_until(lambda: any(event["event"] == "beat_deposed" for event in leader.events()))
    wait_until(lambda: beats.fired(follower.token) >= 4)
    assert len(beats.lines(leader.token)) == before
    assert leader.process.poll() is None
    beats.freeze()
    beats.require_one_verdict_a_slot_and_one_message_a_fired_slot()


@pytest.mark.alone
def test_replicas_outlive_a_redis_that_goes_away_and_fire_again_when_it_is_back(tmp_path: Path) -> None:
    with embedded.servers(tmp_path / "servers", embedded.Wanted(postgres=False)) as urls:
        beats = Beats(tmp_path, urls.redis_url, "away")
        try:
            beats.start(2)
            beats.leader_and_follower()
            wait_until(lambda: len(beats.lines()) >= 2)
            server = int(beats.client.info("server")["process_id"])
            os.kill(server, signal.SIGSTOP)
            try:
                time.sleep(4)  # the outage itself: two terms long
            finally:
                os.kill(server, signal.SIGCONT)
            tokens = [replica.token for replica in beats.replicas]
            before = sum(beats.fired(token) for token in tokens)
            took = seconds_until(lambda: sum(beats.fired(token) for token in tokens) >= before + 2, 20)
            assert took <= (TTL + timedelta(seconds=4)).total_seconds()
            assert [replica.process.poll() for replica in beats.replicas] == [None, None]
            beats.require_one_verdict_a_slot_and_one_message_a_fired_slot()
        finally:
            beats.stop()


def test_a_beat_answers_probes_at_the_port_it_was_given_and_refuses_one_that_is_taken(beats: Beats) -> None:
    port = free_port()
    beats.environment["FLEET_METRICS_PORT"] = str(port)

    def answers() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                return str(answer.read(), "utf-8")
        except OSError:
            return ""

    beats.start(1)
    wait_until(lambda: answers() == "ok\n", 30)
    beats.start(1)
    assert beats.replicas[1].process.wait(30) == 2
    said = beats.replicas[1].log.read_text()
    assert f"fleet: Nothing can listen on '127.0.0.1', port {port}" in said and "Traceback" not in said


DYING_ALARM = """
import os
from pathlib import Path
from beat import alarm

whole = alarm.next_slot

def dying(entry, after):
    if Path(__file__).with_name(f"die-{os.getpid()}").exists():
        raise SystemExit  # nothing catches it: the thread that rings ends
    return whole(entry, after)

alarm.next_slot = dying
"""
WALL_CLOCK_BY_HAND = """
from datetime import UTC, datetime
from pathlib import Path
import apscheduler.schedulers.base as scheduler
from fleet.clock import Clock

hand = Path(__file__).with_name("wall")

def wall(*_):
    return datetime.now(UTC) + timedelta(seconds=float(hand.read_text()))

class Hands:
    now = staticmethod(wall)

Clock.real_now, scheduler.datetime = wall, Hands
"""


def page(replica: Replica, name: str) -> tuple[int, str]:
    """Status and text of a probe's page."""
    where = next(event["metrics"] for event in replica.events() if event["event"] == "beat_started")
    return answer_of(where.replace("/metrics", name))


def answer_of(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, str(answer.read(), "utf-8")
    except urllib.error.HTTPError as error:
        return error.code, str(error.read(), "utf-8")


@pytest.mark.alone
def test_a_replica_whose_alarm_clock_died_is_unready_within_ten_seconds_and_hands_over(
    tmp_path: Path, redis_url: str, namespace: str
) -> None:
    beats = Beats(tmp_path, redis_url, namespace, SCHEDULE + DYING_ALARM)
    try:
        beats.start(2)
        leader, follower = beats.leader_and_follower()
        wait_until(lambda: beats.fired(leader.token) and page(leader, "/readyz")[0] == 200)
        (tmp_path / "config" / f"die-{leader.process.pid}").touch()
        took = seconds_until(lambda: page(leader, "/readyz")[0] == 503, 15)
        assert took < 10
        assert page(leader, "/healthz")[0] == 503
        assert "its thread died or hangs" in page(leader, "/healthz")[1]
        wait_until(lambda: beats.fired(follower.token) >= 2, 5)
        before = len(beats.lines(leader.token))
        wait_until(lambda: beats.fired(follower.token) >= 4)
        assert len(beats.lines(leader.token)) == before
        assert leader.process.poll() is None, "nothing makes it exit"
        assert page(follower, "/healthz") == (200, "ok\n")
        beats.freeze()
        beats.require_one_verdict_a_slot_and_one_message_a_fired_slot()
    finally:
        beats.stop()


@pytest.mark.alone
def test_a_wall_clock_that_jumps_an_hour_or_to_2200_and_back_neither_bursts_nor_goes_silent(
    tmp_path: Path, redis_url: str, namespace: str
) -> None:
    schedule = SCHEDULE.replace("expires=second", "expires=9 * second") + WALL_CLOCK_BY_HAND
    beats = Beats(tmp_path, redis_url, namespace, schedule)
    hand = tmp_path / "config" / "wall"
    hand.write_text("0")
    try:
        beats.start(1)
        (leader,) = beats.replicas
        wait_until(lambda: leader.token and beats.fired(leader.token) >= 2, 30)
        started, before = time.monotonic(), beats.fired(leader.token)
        for by in (3600, 0, -3600, 0, 174 * 365 * 86_400, 0):
            (tmp_path / "config" / "next").write_text(str(by))
            (tmp_path / "config" / "next").replace(hand)
            fired = beats.fired(leader.token)
            wait_until(lambda fired=fired: beats.fired(leader.token) >= fired + 2, 5)
        elapsed, fired = time.monotonic() - started, beats.fired(leader.token) - before
        assert fired <= elapsed + 2, "a burst"
        said = [event["by"] for event in leader.events() if event["event"] == "wall_clock_jumped"]
        assert said == ["1:00:00", "-1:00:00", "-1:00:00", "1:00:00", "63510 days, 0:00:00", "-63510 days, 0:00:00"]
        beats.freeze()
        assert {line["verdict"] for line in beats.lines()} == {"fired"}
        beats.require_one_verdict_a_slot_and_one_message_a_fired_slot()
    finally:
        beats.stop()


def test_a_beat_that_is_started_before_redis_waits_for_it_and_says_so_once(tmp_path: Path) -> None:
    server, port = OwnRedis(tmp_path), free_port()
    beats = Beats(tmp_path, server.url, "late", FLEET_METRICS_PORT=str(port))

    def said(event: str) -> int:
        return sum(line["event"] == event for line in beats.replicas[0].events())

    try:
        beats.start(1)
        wait_until(lambda: said("beat_waits_for_redis"), 30)
        time.sleep(8)  # so that it asks again, and longer than an alarm clock that turns may be silent
        assert answer_of(f"http://127.0.0.1:{port}/healthz") == (200, "ok\n"), "a restart would not help"
        assert answer_of(f"http://127.0.0.1:{port}/readyz")[0] == 503
        server.start()
        wait_until(lambda: said("slots_fired") >= 2, 30)
        assert said("beat_waits_for_redis") == 1
        assert beats.replicas[0].process.poll() is None
    finally:
        beats.stop()
        server.stop()


def test_an_entry_that_names_no_actor_is_refused_at_the_start_not_at_its_first_slot(
    tmp_path: Path, redis_url: str, namespace: str
) -> None:
    beats = Beats(tmp_path, redis_url, namespace, SCHEDULE.replace('"tick"', '"tik"'))
    try:
        beats.start(1)
        (replica,) = beats.replicas
        assert replica.process.wait(30) == 2
        assert "There is no actor named 'tik'. Did you mean 'tick'?" in replica.log.read_text()
        assert beats.client.get(keys.leader(namespace)) is None
    finally:
        beats.stop()


def test_a_beat_that_is_deposed_is_an_event_of_sentrys(tmp_path: Path, redis_url: str, namespace: str) -> None:
    ingest = Ingest()
    beats = Beats(tmp_path, redis_url, namespace, FLEET_SENTRY_DSN=ingest.dsn)
    try:
        beats.start(1)
        (leader,) = beats.replicas
        wait_until(lambda: leader.token and beats.fired(leader.token))
        beats.client.set(keys.leader(namespace), "somebody-else", px=60_000)
        wait_until(ingest.events)
        (event,) = ingest.events()
        assert (event["fingerprint"], event["tags"]["process"]) == (["beat_deposed"], "beat")
        assert event["tags"]["reason"] == "the lock is not this replica's any more"
    finally:
        beats.stop()
        ingest.close()
