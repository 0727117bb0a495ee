"""Nothing that was committed is lost, and nothing that was rolled back is sent, wherever a process or server dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from fleet import embedded
from fleet.relay import relay
from fleet.storage.engine import psycopg_url
from fleet.storage.migrate import migrate
from fleet.workers.relaying import Relaying
from tests.fleet.conftest import MINIMAL
from tests.fleet.post import Post
from tests.waiting import wait_until
from tests.workers.conftest import Running, supervise

__all__ = ["supervise"]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def post(redis_url: str, migrated_url: str, namespace: str) -> Iterator[Post]:
    made = Post(redis_url, migrated_url, namespace)
    yield made
    made.close()


def play(post: Post, redis_url: str, database_url: str, *flow: str) -> subprocess.CompletedProcess[str]:
    """Run the process that is killed, in the test's namespace."""
    named = {
        "FLEET_REDIS_URL": redis_url,
        "FLEET_DATABASE_URL": database_url,
        "FLEET_NAMESPACE": post.broker.namespace,
    }
    command = [sys.executable, "-m", "tests.chaos.outbox_process", *flow]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **named}, stdout=subprocess.PIPE, text=True, timeout=120
    )


@pytest.mark.parametrize(("flow", "boundaries"), [("send", 24), ("relay", 16)])
def test_a_process_killed_at_any_boundary_loses_nothing_and_sends_nothing_that_was_rolled_back(
    post: Post, redis_url: str, migrated_url: str, flow: str, boundaries: int
) -> None:
    killed = int(play(post, redis_url, migrated_url, flow).stdout)
    assert killed >= boundaries
    wait_until(lambda: post.connections() == 1)  # the server has noticed who is gone, and let go of their rows
    post.age()
    before, left = post.queued(), len(post.rows())
    relay(post.engine, post.broker)
    print(
        f"{flow}: killed at {killed} boundaries; {len(post.orders())} orders, {len(before)} sent, {left} rows relayed"
    )
    assert left > 0 or flow == "relay"  # whose last child came to its end
    assert post.rows() == []
    assert sorted(post.queued()) == sorted(post.orders())
    assert not [name for name in post.queued() if "rolled back" in name]


@pytest.mark.alone
@pytest.mark.parametrize("rate", [1, 240], ids=["in real time", "in a played night"])
def test_what_a_process_left_that_was_killed_between_commit_and_send_runs_within_five_seconds(
    post: Post, supervise: Callable[..., Running], redis_url: str, migrated_url: str, rate: int
) -> None:
    now = datetime.now(UTC).isoformat()
    night = {"FLEET_CLOCK_ORIGIN": now, "FLEET_CLOCK_ANCHOR": now, "FLEET_CLOCK_RATE": str(rate)}
    lane = supervise(FLEET_DATABASE_URL=migrated_url, **night)
    lane.ready(1)
    took = []
    for number in range(3):
        died = play(post, redis_url, migrated_url, "once", str(lane.journal), f"job-{number}")
        ends = time.monotonic()
        assert died.returncode == -signal.SIGKILL
        wait_until(lambda: lane.events("begin", f"job-{number}"), 10)  # noqa: B023
        took.append(time.monotonic() - ends)
    print("seconds from SIGKILL to the start of the job:", [round(one, 2) for one in took])
    assert max(took) <= 5
    assert post.rows() == []


@pytest.fixture
def own_database(tmp_path: Path) -> Iterator[str]:
    """A PostgreSQL of the test's own, migrated."""
    with embedded.servers(tmp_path / "own", embedded.Wanted(valkey=False)) as urls:
        url = psycopg_url(urls.database_url).render_as_string(hide_password=False)
        engine = create_engine(url)
        migrate(engine, MINIMAL)
        engine.dispose()
        yield url


def crash(database_url: str) -> None:
    """SIGKILL to one of its processes: PostgreSQL ends all others, recovers from its log and starts anew."""
    engine = create_engine(database_url)
    connection = engine.connect()
    os.kill(int(connection.scalar(text("SELECT pg_backend_pid()")) or 0), signal.SIGKILL)
    connection.invalidate()
    engine.dispose()


def test_a_postgresql_that_is_restarted_under_load_loses_no_row_and_no_message(
    own_database: str, redis_url: str, namespace: str
) -> None:
    post = Post(redis_url, own_database, namespace, pool_pre_ping=True)
    relaying = Relaying(post.broker, own_database)
    relaying.start()
    stop, failed = threading.Event(), [0, 0, 0, 0]

    def load(thread: int) -> None:
        number = 0
        while not stop.wait(0.002):
            number += 1
            try:
                with post.session() as s:
                    post.order(s, f"{thread}-{number}")
                    s.commit()
            except DBAPIError:
                failed[thread] += 1
                stop.wait(0.05)

    threads = [threading.Thread(target=load, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        stop.wait(0.7)
        crash(own_database)
        committed = wait_until(lambda: orders(post), 20)
        wait_until(lambda: len(orders(post) or ()) > len(committed) + 40, 20)  # noqa: B023
    stop.set()
    for thread in threads:
        thread.join()
    wait_until(lambda: post.rows() == [], 10)
    relaying.stop()
    print(f"{len(post.orders())} orders committed, {sum(failed)} refused, {len(post.queued())} messages")
    assert min(failed) > 0
    assert sorted(post.queued()) == sorted(post.orders())
    post.close()


def orders(post: Post) -> list[Any] | None:
    """The committed orders; None while the database does not answer."""
    try:
        return post.orders()
    except DBAPIError:
        return None
