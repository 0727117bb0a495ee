"""A person sees what stands in the outbox, and may have it tried again or dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import pytest

from fleet import metrics, outbox, relay
from fleet.relay import Relayed, measured_pass
from fleet.standing import standing
from tests.fleet.conftest import MINIMAL, Fleet
from tests.fleet.post import QUEUE, Post

Tell = Callable[..., None]


@pytest.fixture
def post(redis_url: str, migrated_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Post]:
    """With one row that could be sent, and one of a queue that no lane serves."""
    made = Post(redis_url, migrated_url, namespace)
    made.broker.lanes = MappingProxyType({QUEUE: None})  # type: ignore[arg-type]
    monkeypatch.setattr(outbox, "_send", lambda *_: None)
    with made.session() as s:
        made.actor("greet nobody", "gone").send_on_commit(s, "parked")
        made.order(s, "good")
        s.commit()
    yield made
    made.close()


def test_a_measured_pass_says_what_it_found_and_what_still_stands(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(relay.log, "warning", lambda event, **values: said.append(("warning", values)))
    monkeypatch.setattr(relay.log, "info", lambda event, **values: said.append(("info", values)))
    post.age(timedelta(minutes=2))
    assert measured_pass(post.engine, post.broker) == Relayed(sent=1, refused=1)
    level, line = said[0]
    told = {name: line[name] for name in ("verdict", "scanned", "stuck", "recovered", "failed", "skipped_live")}
    assert (level, line["oldest"]) == ("warning", "0:02:00")
    assert told == {"verdict": "failed", "scanned": 2, "stuck": 2, "recovered": 1, "failed": 1, "skipped_live": 1}
    figure = metrics._metrics()["outbox"]
    assert [figure.labels(state)._value.get() for state in ("waiting", "refused")] == [1, 1]
    post.broker.lanes = MappingProxyType({})
    post.age(timedelta(minutes=2))
    measured_pass(post.engine, post.broker)
    measured_pass(post.engine, post.broker)
    assert [(level, line["verdict"]) for level, line in said[1:]] == [("info", "acted"), ("info", "idle")]


def test_the_command_lists_retries_and_drops_what_could_not_be_sent(
    post: Post, fleet: Fleet, redis_url: str, migrated_url: str, namespace: str
) -> None:
    where = {"FLEET_REDIS_URL": redis_url, "FLEET_DATABASE_URL": migrated_url, "FLEET_NAMESPACE": namespace}
    post.age()
    relay.relay(post.engine, post.broker)
    (parked,) = post.rows()
    listed = fleet(MINIMAL, "outbox", "list", "--refused", **where).stdout
    assert "1 of 1 that wait; 1 could not be sent" in listed
    assert "greet nobody" in listed and "No lane of this fleet serves the queue 'gone'" in listed
    assert "1 of 1 are tried again" in fleet(MINIMAL, "outbox", "retry", str(parked.id), **where).stdout
    assert relay.relay(post.engine, post.broker) == Relayed(refused=1)
    assert "2 of 2 would be" not in fleet(MINIMAL, "outbox", "discard", str(parked.id), "0", **where).stdout
    assert standing(post.engine, post.broker).refused == 1
    assert "1 of 2 dropped." in fleet(MINIMAL, "outbox", "discard", str(parked.id), "0", "--yes", **where).stdout
    assert post.rows() == []


def test_what_was_never_refused_cannot_be_dropped(
    post: Post, fleet: Fleet, redis_url: str, migrated_url: str, namespace: str
) -> None:
    where = {"FLEET_REDIS_URL": redis_url, "FLEET_DATABASE_URL": migrated_url, "FLEET_NAMESPACE": namespace}
    ids = [str(row.id) for row in post.rows()]
    assert "0 of 2 dropped." in fleet(MINIMAL, "outbox", "discard", *ids, "--yes", **where).stdout
    assert len(post.rows()) == 2
