"""A soft deadline at every instant of a job's life, seeded: it may leave a dead letter behind, and nothing else.

The judges are what the bodies themselves noted, and what stands in Redis and PostgreSQL.
"""

from __future__ import annotations

import gc
import importlib
import logging
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
import structlog
from sqlalchemy import text

from fleet import Budget, deadline, logs, queue
from fleet import app as application
from fleet.broker.connection import client_from
from fleet.errors import DeadlineExceeded
from fleet.storage import database, engine, session
from tests.middleware.conftest import house  # noqa: F401  # a fixture
from tests.waiting import wait_until

RUNS = 500
SOFT = timedelta(milliseconds=20)
LONG = Budget(timedelta(seconds=30), timedelta(seconds=60), because="it has to see what the others left")


@pytest.fixture(autouse=True)
def at_every_chance() -> Iterator[None]:
    """Threads change places so often that a raise may strike between any two lines."""
    usual, over = sys.getswitchinterval(), threading.Event()

    def wants_its_turn() -> None:
        while not over.is_set():
            pass

    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=wants_its_turn)
    thread.start()
    yield
    over.set()
    thread.join()
    sys.setswitchinterval(usual)


def struck(times: int, draw: random.Random, body: Callable[[], object]) -> None:
    """Run an endless body until a deadline of up to two milliseconds, so often."""
    for _ in range(times):
        with pytest.raises(DeadlineExceeded):
            deadline.run_within(timedelta(milliseconds=draw.uniform(0.2, 2)), body)


def struck_in_threads(count: int, body: Callable[[], object]) -> None:
    threads = [threading.Thread(target=struck, args=(RUNS // count, random.Random(n), body)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a lock was left taken"


def elsewhere(work: Callable[[], object]) -> None:
    """Do this in another thread; one that hangs for a lock fails the test."""
    done = threading.Event()
    threading.Thread(target=lambda: (work(), done.set()), daemon=True).start()
    assert done.wait(10), "a lock was left taken"


def test_no_message_is_both_acknowledged_and_unfinished_and_no_thread_dies(house: Any) -> None:  # noqa: F811
    """Bodies end from four milliseconds before their budget to four after it, in hooks and acknowledgement."""
    draw = random.Random(4)
    finished: set[int] = set()
    sent_on: set[int] = set()
    arrived: list[int] = []
    told: list[str] = []
    follow = queue("work").actor(name="follow", budget=LONG)(lambda number: arrived.append(number))

    @queue("work").actor(
        budget=Budget(SOFT, timedelta(seconds=30), because="struck around its end"),
        on_lost=lambda message, reason: told.append(reason),
    )
    def job(number: int, seconds: float) -> None:
        ends = time.monotonic() + seconds
        if number % 5 == 0:
            follow.send(number)
            sent_on.add(number)
        while time.monotonic() < ends:
            pass
        finished.add(number)

    numbers = {job.send(number, 0.022 + draw.uniform(-0.004, 0.004)).message_id: number for number in range(RUNS)}
    house.work()
    house.until_idle(60)
    dead = {numbers[message.message_id] for message in house.dead()}
    assert set(range(RUNS)) - dead <= finished, "acknowledged, and unfinished"
    assert len(house.dead()) == len(dead) == len(told), "a message died twice, or of something else"
    assert 50 < len(dead) < RUNS - 50, "the sweep went past its aim"
    assert sent_on <= set(arrived)
    assert all(thread.is_alive() for thread in house._worker.workers)
    both = threading.Barrier(2)
    queue("work").actor(name="meet", budget=LONG)(lambda: both.wait(10))
    for _ in range(2):
        house.broker.enqueue(house.broker.get_actor("meet").message())
    house.until_idle()
    assert len(house.dead()) == len(dead)


def test_a_reply_of_redis_is_never_another_commands(redis_url: str) -> None:
    client, wrong = client_from(redis_url), list[tuple[str, Any]]()

    def asks() -> None:
        while True:
            said = str(random.random())
            found = client.echo(said)
            if found != said.encode():
                wrong.append((said, found))

    struck_in_threads(8, asks)
    assert wrong == []
    assert client.echo("last") == b"last"
    pool: Any = client.connection_pool
    assert len(pool._in_use_connections) == 0
    client.close()


def test_a_log_line_cut_short_silences_nobody(capfd: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level, configured = root.handlers[:], root.level, structlog.get_config()
    logs.configure("json", "INFO")
    (handler,) = root.handlers
    handler.setFormatter(logging.Formatter("%(message)s"))
    try:
        ours, stock = logs.get_logger("chaos"), logging.getLogger("chaos")

        def says() -> None:
            while True:
                ours.info("a", b=1)
                stock.info("c")

        for _ in range(10):
            struck(RUNS // 10, random.Random(6), says)
            elsewhere(lambda: stock.info("heard"))
            capfd.readouterr()
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        structlog.configure(**configured)


def test_the_pool_of_connections_is_whole_afterwards(environment: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four threads share three connections, so that some are struck while they wait for one."""
    monkeypatch.setenv("FLEET_DATABASE_POOL", "3")
    importlib.import_module("config.settings").settings.cache_clear()
    application.settings.cache_clear()
    for made_once in (engine.database, engine._sessions):
        made_once.cache_clear()
    with session() as s:
        s.execute(text("SELECT 1"))

    def asks() -> None:
        while True:
            with session() as s:
                s.execute(text("SELECT 1"))

    struck_in_threads(4, asks)
    pool: Any = database().pool
    gc.collect()  # connections of sessions that were struck before their end began
    # Connections of sessions that were struck before their end began come back when these are collected.
    wait_until(lambda: gc.collect() >= 0 and pool.checkedout() == 0)

    def takes_them_all() -> None:
        with ExitStack() as stack:
            for _ in range(pool.size()):
                stack.enter_context(session()).execute(text("SELECT 1"))

    elsewhere(takes_them_all)
    assert pool.checkedout() == 0
