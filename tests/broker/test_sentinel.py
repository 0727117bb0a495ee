"""The master behind sentinels is killed, or demoted on purpose: consumers and the subscription follow by themselves."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from fleet.broker import FleetBroker, keys
from fleet.broker.broker import NotAccepted
from fleet.broker.connection import client_from
from fleet.errors import ServerRefused, ServerUnreachable
from fleet.servers import require_broker
from tests.broker.life import AT_ONCE, live
from tests.broker.sentinels import NAME, Watched
from tests.broker.station import Station
from tests.waiting import wait_until

BACK_WITHIN = 2.0
Keep = Callable[[Station], Station]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Watched]:
    """One sentinel that wants a password of its own."""
    made = Watched(tmp_path, count=1, password="s3cret")
    yield made
    made.stop()


def events(logs: list[Any], kind: str) -> list[str]:
    return [line["event"] for line in logs if line["event"].startswith(kind)]


class Sending(threading.Thread):
    """Sends one number after the other until stopped, and notes which were accepted."""

    def __init__(self, send: Callable[[int], Any], first: int) -> None:
        super().__init__(daemon=True)
        self._send, self._next = send, first
        self._stopped = threading.Event()
        self.accepted: list[tuple[float, int]] = []
        self.refused: list[int] = []
        self.broke: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stopped.wait(0.02):
                self._next += 1
                try:
                    self._send(self._next)
                    self.accepted.append((time.monotonic(), self._next))
                except NotAccepted:
                    self.refused.append(self._next)
        except BaseException as error:
            self.broke = error

    def stop(self) -> None:
        self._stopped.set()
        self.join(10)
        assert self.broke is None


@pytest.mark.alone
def test_the_master_is_killed_and_nothing_replicated_is_lost(watched: Watched, stations: Keep) -> None:
    station = stations(Station(watched.url, "own"))
    ran = Counter[int]()
    note = station.actor(lambda number: ran.update([number]), actor_name="note")
    with capture_logs() as logs:
        station.work()
        note.send(0)
        wait_until(lambda: 0 in ran)
        for number in range(1, 51):
            note.send_with_options(args=(number,), delay=1_500)
        with watched.master.client as master:
            assert master.pubsub_numsub(keys.wake("own"))[0][1] == 1
            master.set("own:replicated", 1, ex=60)
            assert master.execute_command("WAIT", 1, 5_000) == 1
        watched.master.kill()
        sending = Sending(note.send, 1_000)
        sending.start()
        promoted = watched.promoted()
        wait_until(lambda: events(logs, "redis") == ["redis_lost", "redis_back"])
        assert time.monotonic() - promoted < BACK_WITHIN
        wait_until(lambda: any(at > promoted for at, _ in sending.accepted))
        wait_until(lambda: events(logs, "wake") == ["wake_lost", "wake_restored"])
        sending.stop()
        accepted = {number for _, number in sending.accepted}
        wait_until(lambda: {*range(51), *accepted} <= set(ran))
        station.until_empty()
        with watched.replica.client as new:
            assert new.pubsub_numsub(keys.wake("own"))[0][1] == 1
        note.send(9_999)
        wait_until(lambda: 9_999 in ran, AT_ONCE)
    assert events(logs, "redis") == ["redis_lost", "redis_back"]
    assert events(logs, "wake") == ["wake_lost", "wake_restored"]
    assert {number for number, times in ran.items() if times > 1} == set()


@pytest.mark.alone
def test_a_master_that_is_demoted_on_purpose_is_left_for_the_new_one(watched: Watched, stations: Keep) -> None:
    station = stations(Station(watched.url, "own"))
    ran = Counter[int]()
    note = station.actor(lambda number: ran.update([number]), actor_name="note")
    with capture_logs() as logs:
        station.work()
        note.send(0)
        wait_until(lambda: 0 in ran)
        with watched.ask(watched.sentinels[0]) as sentinel:
            sentinel.execute_command("SENTINEL", "FAILOVER", NAME)
        watched.promoted()
        with watched.master.client as old:  # what its sentinels do after ten seconds, but for closing its connections
            old.replicaof("127.0.0.1", watched.replica.port)
        sending = Sending(note.send, 1_000)
        sending.start()
        wait_until(lambda: sending.accepted, BACK_WITHIN)
        sending.stop()
        wait_until(lambda: {number for _, number in sending.accepted} <= set(ran), BACK_WITHIN)
        wait_until(lambda: events(logs, "wake") == ["wake_lost", "wake_restored"], BACK_WITHIN)
        with watched.replica.client as new:
            assert new.pubsub_numsub(keys.wake("own"))[0][1] == 1
        note.send(2)
        wait_until(lambda: 2 in ran, AT_ONCE)
        station.until_empty()
    assert events(logs, "redis") in ([], ["redis_lost", "redis_back"])  # none, where a sender was told before the pump
    assert events(logs, "wake") == ["wake_lost", "wake_restored"]


@pytest.mark.alone
def test_a_sentinel_that_is_down_or_silent_is_passed_over_for_the_next(watched: Watched, stations: Keep) -> None:
    watched.kill_sentinel(0)
    silent = watched._processes[1]
    silent.send_signal(19)
    try:
        broker = stations(Station(watched.url, "own")).broker
        began = time.monotonic()
        assert broker.client.ping()
        assert time.monotonic() - began < 1.5  # the silent one's second, and no wait for the dead one
        began = time.monotonic()
        broker.client.connection_pool.disconnect()
        assert broker.client.ping()
        assert time.monotonic() - began < 0.5  # the one that answered is asked first now
    finally:
        silent.send_signal(18)


def test_many_threads_that_ask_at_once_lose_no_sentinel(watched: Watched) -> None:
    watched.kill_sentinel(0)
    pool = client_from(watched.url).connection_pool
    asked = [threading.Thread(target=pool.get_master_address) for _ in range(32)]  # type: ignore[attr-defined]
    for thread in asked:
        thread.start()
    for thread in asked:
        thread.join()
    known = [one.connection_pool.connection_kwargs["port"] for one in pool.sentinel_manager.sentinels]  # type: ignore[attr-defined]
    assert sorted(known) == sorted(watched.sentinels)
    assert known[0] != watched.sentinels[0]


def test_sentinels_have_a_password_of_their_own(locked: Watched, stations: Keep) -> None:
    with locked.master.client as admin:
        admin.execute_command("ACL", "SETUSER", "nightshift", "on", ">of the master", "~own:*", "&own:*", "+@all")
    login = locked.url.replace("://", "://nightshift:of%20the%20master@")
    live(stations(Station(f"{login}?sentinel_password=s3cret", "own")))
    for url in (login, f"{login}?sentinel_password=wr0ng"):
        with pytest.raises(ServerRefused, match="sentinel_password= are for them") as raised:
            require_broker(FleetBroker(url=url, namespace="own", middleware=[]))
        assert "wr0ng" not in str(raised.value) and "of the master" not in str(raised.value)


def test_a_name_that_no_sentinel_knows_is_answered_with_those_it_knows(locked: Watched) -> None:
    url = locked.url.replace(NAME, "day") + "?sentinel_password=s3cret"
    with pytest.raises(ServerUnreachable, match=f"master 'day'.*knows no such master, only {NAME}"):
        require_broker(FleetBroker(url=url, namespace="own", middleware=[]))


def test_the_parts_of_a_sentinel_url_reach_whom_they_are_for() -> None:
    url = "redis+sentinel://me:m%40ster@[::1]:1,host,[fe80::2]/night/3?sentinel_username=s&sentinel_password=p&db=4"
    pool: Any = client_from(url.replace("&db=4", "")).connection_pool
    sentinels = [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]
    assert [(one["host"], one["port"]) for one in sentinels] == [("::1", 1), ("host", 26379), ("fe80::2", 26379)]
    for one in sentinels:
        assert (one["username"], one["password"], one.get("db", 0)) == ("s", "p", 0)
        assert one["socket_timeout"] == one["socket_connect_timeout"] == 1
        assert one["retry"].get_retries() == 0
    to_master = pool.connection_kwargs
    assert (to_master["username"], to_master["password"], to_master["db"]) == ("me", "m@ster", 3)
    assert (pool.service_name, to_master["socket_timeout"], to_master["retry"].get_retries()) == ("night", 5, 0)
    assert client_from(url).connection_pool.connection_kwargs["db"] == 4
