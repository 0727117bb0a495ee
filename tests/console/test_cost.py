"""What opening a page asks of Redis does not grow with what stands in its queues."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from fleet.broker import FleetBroker, keys
from fleet.console.letters import address
from fleet.console.pages import PAGES
from tests.broker.letters import fill
from tests.console import staged
from tests.console.conftest import Client

WAITING, DEAD = 20_000, 5_000
GROWS_WITH_A_QUEUE = {"keys", "smembers", "sort", "hkeys", "hvals", "lpos"}
# Hashes of a lane's or an entry's own size, and capped streams of what comes once a night minute.
SMALL = re.compile(r":fleet:(processes|beat:paused|readings|alerts|flow:\d+|readings:history|decisions:\w+)$")


@contextmanager
def watched(client: redis.Redis) -> Iterator[list[list[str]]]:
    """The commands that reach the server meanwhile, those of scripts too."""
    told: list[list[str]] = []
    with client.monitor() as monitor:
        yield told
        client.echo("the end")
        for command in monitor.listen():
            words = command["command"].split(" ")
            if words[0].lower() == "echo":
                return
            told.append(words)


@pytest.fixture
def large(broker: FleetBroker) -> FleetBroker:
    staged.waiting(broker, "transaction_sync", WAITING, age=staged.MINUTE)
    fill(broker, DEAD, queue="charging")
    return broker


@pytest.mark.parametrize("path", [page.path for page in PAGES] + ["/dead?queue=charging&actor=nobody"])
def test_a_page_asks_for_no_whole_list(
    client: Client, large: FleetBroker, redis_client: redis.Redis, path: str
) -> None:
    path = path.replace("{entry}", "nightly_audit").replace("{queue}/{id}", f"charging/{address('charging-000000')}")
    with watched(redis_client) as told:
        assert client().get(path).status_code == 200
    assert not [words for words in told if unbounded(words)]
    assert len(told) < 120


def unbounded(words: list[str]) -> bool:
    """Whether a command's work grows with a queue."""
    name, *given = [word.lower() for word in words]
    if name in GROWS_WITH_A_QUEUE:
        return True
    if name in ("lrange", "zrange") and given[1:3] == ["0", "-1"]:
        return True
    if name == "zrangebyscore" and "limit" not in given and ":fleet:processes:seen" not in given[0]:
        return True
    if name in ("xrange", "xrevrange") and "count" in given:
        return False
    whole = ("hgetall", "scan", "hscan", "zscan", "xrange", "xrevrange")
    return name in whole and not SMALL.search(words[1] if len(words) > 1 else "")


def test_the_watch_sees_what_a_script_asks_and_knows_a_whole_list(
    redis_client: redis.Redis, large: FleetBroker
) -> None:
    listed = keys.queue(large.namespace, "transaction_sync")
    with watched(redis_client) as told:
        redis_client.eval("return #redis.call('LRANGE', KEYS[1], 0, -1)", 1, listed)  # type: ignore[no-untyped-call]
        redis_client.hgetall(keys.bodies(large.namespace, "charging"))
    bad: list[Any] = [words[0].lower() for words in told if unbounded(words)]
    assert bad == ["lrange", "hgetall"]
