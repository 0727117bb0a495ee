"""Processes of two releases with different schedules, led now by one and now by the other."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import redis
from dramatiq import Message

from beat.revisions import history
from fleet import ledger, wire
from fleet.broker import keys
from fleet.slots import slots_between
from tests.beat.test_beat_process import SCHEDULE, Beats
from tests.waiting import wait_until

TICK = timedelta(microseconds=1)
OLD = SCHEDULE.replace("every=second", "every=2 * second")
NEW = SCHEDULE.replace("every=second", 'cron="1-59/2 * * * * *", tz="Europe/Berlin"')


class Deploy:
    """Beats of the old release and of the new one, on one Redis and in one namespace."""

    def __init__(self, folder: Path, redis_url: str, namespace: str) -> None:
        self.client, self._namespace = redis.Redis.from_url(redis_url), namespace
        self.old, self.new = (
            Beats(self._made(folder / name), redis_url, namespace, schedule)
            for name, schedule in (("old", OLD), ("new", NEW))
        )

    @staticmethod
    def _made(folder: Path) -> Path:
        folder.mkdir()
        return folder

    def lines(self) -> list[ledger.LedgerLine]:
        return [line for line in ledger.read(self.client, self._namespace, "tick") if line.judges]

    def fired(self, token: str, revision: int) -> int:
        return sum((line.token, line.revision, line.verdict) == (token, revision, "fired") for line in self.lines())

    def leads(self) -> str:
        return (self.client.get(keys.leader(self._namespace)) or b"").decode()

    def require_each_slot_once(self) -> None:
        known = history("tick", self.client.hget(keys.revisions(self._namespace), "tick").decode())  # type: ignore[union-attr]
        assert known is not None
        entries = {revision.number: revision.entry for revision in known.revisions}
        judged: list[datetime] = []
        for line in self.lines():
            entry = entries[line.revision]
            assert entry is not None
            judged += slots_between(entry, line.first - TICK, line.last)
        began = [*(revision.began for revision in known.revisions[1:]), judged[-1]]
        should: list[datetime] = []
        since = judged[0] - TICK
        for revision, until in zip(known.revisions, began, strict=True):
            assert revision.entry is not None
            should += slots_between(revision.entry, since, until)
            since = until
        assert judged == should
        fired = [f"tick@{wire.to_ms(line.first)}" for line in self.lines() if line.verdict == "fired"]
        ids = [id.decode() for id in self.client.lrange(keys.queue(self._namespace, "ticks"), 0, -1)]
        bodies = self.client.hgetall(keys.bodies(self._namespace, "ticks"))
        assert ids == fired and {Message.decode(body).message_id for body in bodies.values()} == {*fired}


@pytest.fixture
def deploy(tmp_path: Path, redis_url: str, namespace: str) -> Iterator[Deploy]:
    made = Deploy(tmp_path, redis_url, namespace)
    yield made
    made.old.stop()
    made.new.stop()
    made.client.close()


def test_a_rolling_deploy_doubles_no_slot_and_loses_none_whichever_release_leads(deploy: Deploy) -> None:
    deploy.old.start(2)
    first, second = deploy.old.leader_and_follower()
    wait_until(lambda: deploy.fired(first.token, 1) >= 2)
    deploy.new.start(1)
    wait_until(lambda: deploy.fired(first.token, 2) >= 2, 30)
    (new,) = deploy.new.replicas
    assert deploy.leads() == first.token, "an old leader fires the new schedule"
    first.process.send_signal(signal.SIGKILL)
    wait_until(deploy.leads)
    wait_until(lambda: deploy.leads() in (second.token, new.token))
    wait_until(lambda: deploy.fired(deploy.leads(), 2) >= 2, 20)
    second.process.terminate()
    wait_until(lambda: deploy.fired(new.token, 2) >= 2, 20)
    new.process.terminate()
    assert new.process.wait(20) == 0
    assert {line.revision for line in deploy.lines()} == {1, 2}
    deploy.require_each_slot_once()
