"""A person sees what stands in the outbox, and may have it tried again or dropped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import select
from structlog.testing import capture_logs

from fleet import janitor, outbox, relay
from fleet.left_behind import LeftBehind
from fleet.relay import Relayed
from fleet.standing import standing
from fleet.storage.tables import AuditRow
from tests.fleet.conftest import MINIMAL, Fleet
from tests.fleet.post import QUEUE, Post


def passed(chores: Sequence[LeftBehind]) -> dict[str, Any]:
    """The line of a pass."""
    with capture_logs() as lines:
        janitor.run("relay_outbox", chores)
    return {**lines[-1]}


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


def test_the_janitor_sends_what_no_relay_has_sent_and_tries_again_what_was_refused(post: Post) -> None:
    post.age(timedelta(minutes=2))
    relay.relay(post.engine, post.broker)
    chores = [LeftBehind(post.engine, post.broker)]
    seen, _ = janitor.preview(chores)
    assert (seen.scanned, seen.stuck, seen.skipped_live) == (2, 1, 1)
    with post.session() as s:
        post.order(s, "late")
        s.commit()
    post.age(timedelta(minutes=2))
    line = passed(chores)
    told = {name: line[name] for name in ("verdict", "scanned", "stuck", "recovered", "failed", "skipped_live")}
    assert told == {"verdict": "failed", "scanned": 3, "stuck": 2, "recovered": 1, "failed": 1, "skipped_live": 1}
    assert (line["log_level"], line["oldest"]) == ("warning", "4m00s")
    assert post.queued() == ["good", "late"]
    assert REGISTRY.get_sample_value("fleet_outbox_rows", {"state": "refused"}) == 1
    post.broker.lanes = MappingProxyType({})
    assert passed(chores)["verdict"] == "acted"
    assert (post.queued("gone"), post.rows()) == (["parked"], [])
    assert passed(chores)["verdict"] == "idle"


def test_a_dry_run_names_messages_that_are_alike_once_and_why_they_were_not_sent(post: Post) -> None:
    post.age(timedelta(minutes=2))
    with post.session() as s:
        post.order(s, "another")
        s.commit()
    post.age(timedelta(minutes=2))
    with post.session() as s:
        post.order(s, "young: its sender may be about to send it")
        s.commit()
    alike = [(stuck.subject, stuck.plan, stuck.count) for stuck in LeftBehind(post.engine, post.broker).find()]
    assert alike == [("1 to greet nobody on gone", "sent", 1), ("2 to ship on work", "sent", 2)]
    relay.relay(post.engine, post.broker)
    (refused,) = LeftBehind(post.engine, post.broker).find()
    assert refused.subject.startswith("1 to greet nobody on gone: No lane of this fleet serves")
    assert refused.plan == "tried again"
    assert len(post.rows()) == 2


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
    words = (str(parked.id), "0", "--yes", "--because", "nobody serves it any more")
    assert "1 of 2 dropped." in fleet(MINIMAL, "outbox", "discard", *words, **where).stdout
    assert post.rows() == []
    with post.engine.connect() as connection:
        asked = select(AuditRow).where(AuditRow.namespace == namespace).order_by(AuditRow.at.desc())
        dropped, retried = connection.execute(asked).all()
    assert (dropped.what, retried.what) == ("outbox discard", "outbox retry")
    assert (dropped.subject, dropped.because) == (f"rows {parked.id}, 0", "nobody serves it any more")
    assert dropped.before.startswith(f"{parked.id} to greet nobody on gone: No lane of")
    assert dropped.after == "1 of 2 dropped"


def test_what_was_never_refused_cannot_be_dropped(
    post: Post, fleet: Fleet, redis_url: str, migrated_url: str, namespace: str
) -> None:
    where = {"FLEET_REDIS_URL": redis_url, "FLEET_DATABASE_URL": migrated_url, "FLEET_NAMESPACE": namespace}
    ids = [str(row.id) for row in post.rows()]
    assert "0 of 2 dropped." in fleet(MINIMAL, "outbox", "discard", *ids, "--yes", **where).stdout
    assert len(post.rows()) == 2
