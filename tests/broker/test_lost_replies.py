"""Every reply on the wire is lost once: no message is twice in Redis, runs twice, is stranded, or is lost."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable

import dramatiq
import pytest
import redis

from fleet.broker import keys
from fleet.broker.broker import _sender
from tests.broker.proxy import Proxy
from tests.broker.station import QUEUE, Station, places, stock
from tests.forks import in_a_fork
from tests.waiting import wait_until

Keep = Callable[[Station], Station]


def test_stock_doubles_a_send_whose_reply_is_lost_and_ours_does_not(
    proxy: Proxy, namespace: str, redis_client: redis.Redis, stations: Keep
) -> None:
    theirs = stock(proxy.url, f"{namespace}:stock")
    proxy.lose_reply()
    theirs.enqueue(dramatiq.Message(QUEUE, "nobody", (), {}, {}))
    assert list(places(redis_client, f"{namespace}:stock").values()) == [["waiting", "waiting"]]

    ours = stations(Station(proxy.url, namespace))
    ours.broker.declare_queue(QUEUE)
    ours.broker.client.ping()
    proxy.lose_reply()
    ours.broker.enqueue(dramatiq.Message(QUEUE, "nobody", (), {}, {}))
    assert proxy.lost
    assert list(places(redis_client, namespace).values()) == [["waiting"]]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_threads_that_were_forked_of_one_are_known_as_two_senders() -> None:
    """Otherwise the one's next send makes Redis forget the other's last one, which then repeats it."""
    names = {_sender.name, in_a_fork(lambda: _sender.name), in_a_fork(lambda: _sender.name)}
    assert len(names) == 3 and None not in names


def test_stock_strands_a_message_whose_fetch_loses_its_reply_and_ours_runs_it(
    proxy: Proxy, namespace: str, redis_client: redis.Redis, stations: Keep
) -> None:
    theirs = stock(proxy.url, f"{namespace}:stock")
    theirs.enqueue(dramatiq.Message(QUEUE, "nobody", (), {}, {}))
    consumer = theirs.consume(QUEUE, prefetch=1, timeout=20)
    proxy.lose_reply()
    assert next(consumer) is None
    assert next(consumer) is None
    assert list(places(redis_client, f"{namespace}:stock").values()) == [[theirs.broker_id]]

    ours = stations(Station(proxy.url, namespace))
    ran: list[int] = []
    ours.actor(ran.append, actor_name="note").send(1)
    proxy.lose_reply()
    ours.work()
    ours.until_empty()
    assert proxy.lost
    assert ran == [1]


def test_a_send_whose_message_ran_before_the_send_is_repeated_runs_once(
    proxy: Proxy, redis_url: str, namespace: str, stations: Keep
) -> None:
    worker = stations(Station(redis_url, namespace))
    ran: list[int] = []
    worker.actor(ran.append, actor_name="note")
    worker.work()
    sender = stations(Station(proxy.url, namespace))
    note = sender.actor(ran.append, actor_name="note")
    for number in range(5):
        proxy.lose_reply()
        note.send(number)
        assert proxy.lost
    worker.until_empty()
    assert Counter(ran) == Counter(range(5))


class Night:
    """Sends, delays, fan-outs, ends of three kinds and retries, over one connection pool."""

    def __init__(self, station: Station) -> None:
        self._station, self.runs = station, Counter[str]()
        self.note = station.actor(self._note, actor_name="note")
        self.fail_once = station.actor(self._fail_once, actor_name="fail_once")
        self.fail = station.actor(self._fail, actor_name="fail", max_retries=0)

    def _note(self, name: str) -> None:
        self.runs[name] += 1

    def _fail_once(self, name: str) -> None:
        self.runs[name] += 1
        if self.runs[name] == 1:
            raise ValueError(name)

    def _fail(self, name: str) -> None:
        self.runs[name] += 1
        raise ValueError(name)

    def play(self) -> None:
        self._station.work(threads=1, prefetch=2)
        self.note.send("first")
        self.fail_once.send("again")
        self.fail.send("dead")
        self.note.send_with_options(args=("later",), delay=10)
        list(self._station.broker.enqueue_many(self.note.message(f"many {n}") for n in range(5)))
        wait_until(lambda: len(self.runs) == 9 and self.runs["again"] == 2)
        self._station.until_empty()

    @property
    def expected(self) -> Counter[str]:
        return Counter({"first": 1, "again": 2, "dead": 1, "later": 1, **{f"many {n}": 1 for n in range(5)}})


@pytest.mark.parametrize("loss", ["reply", "request"])
def test_whichever_reply_or_request_is_lost_each_message_ends_once(
    loss: str, proxy: Proxy, redis_client: redis.Redis, namespace: str
) -> None:
    nth, more = 1, True
    while more:
        inner = f"{namespace}:{nth}"
        station = Station(proxy.url, inner)
        night = Night(station)
        (proxy.lose_reply if loss == "reply" else proxy.lose_request)(nth)
        try:
            night.play()
        finally:
            station.stop()
        more = proxy.lost
        assert night.runs == night.expected, f"with {loss} {nth} lost"
        assert set(map(tuple, places(redis_client, inner).values())) == {("dead",)}, f"with {loss} {nth} lost"
        assert redis_client.hlen(keys.bodies(inner, QUEUE)) == 0, f"with {loss} {nth} lost"
        nth += 1
        proxy.lose_reply(0)
        proxy.lose_request(0)
    assert nth > 12


def test_connections_cut_half_way_again_and_again_lose_and_double_nothing(
    proxy: Proxy, namespace: str, stations: Keep
) -> None:
    station = stations(Station(proxy.url, namespace))
    ran: Counter[str] = Counter()
    note = station.actor(lambda name: ran.update([name]), actor_name="note")
    station.work(threads=4)
    for round_ in range(10):
        for number in range(10):
            note.send(f"{round_} {number}")
        proxy.cut()
    station.until_empty()
    assert len(ran) == 100
    assert set(ran.values()) == {1}


def test_messages_of_a_fan_out_are_each_accepted_once_when_a_chunks_reply_is_lost(
    proxy: Proxy, namespace: str, redis_client: redis.Redis, stations: Keep
) -> None:
    station = stations(Station(proxy.url, namespace))
    note = station.actor(print, actor_name=f"note-{uuid.uuid4().hex[:4]}")
    proxy.lose_reply(2)
    accepted = list(station.broker.enqueue_many(note.message(n) for n in range(1_200)))
    assert proxy.lost
    waiting = redis_client.lrange(keys.queue(namespace, QUEUE), 0, -1)
    assert [id.decode() for id in waiting] == [message.options["redis_message_id"] for message in accepted]
