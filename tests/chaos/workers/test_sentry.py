"""What no worker process can report its supervisor does; a Redis that is away is one issue, whoever finds it."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from fleet import embedded
from tests.chaos.workers.lane import QUEUE, ChaosLane
from tests.middleware.ingest import Ingest
from tests.waiting import wait_until


@pytest.fixture
def ingest(lane: ChaosLane, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ingest]:
    server = Ingest()
    monkeypatch.setenv("FLEET_SENTRY_DSN", server.dsn)
    yield server
    lane.end()
    server.close()


def tags(event: Any, *names: str) -> tuple[str, ...]:
    return tuple(event["tags"].get(name) for name in names)


def test_a_job_past_its_hard_budget_is_one_event_of_its_supervisors(lane: ChaosLane, ingest: Ingest) -> None:
    lane.start(processes=1, threads=1)
    message = lane.send("hang", "hung", "sleep", 60)
    wait_until(lambda: lane.dead() == {message}, 20)
    lane.end()
    (event,) = [event for event in ingest.events() if "message_id" in event["tags"]]
    assert tags(event, "process", "lane", "queue", "actor", "outcome") == ("supervisor", "jobs", QUEUE, "hang", "lost")
    assert event["tags"]["message_id"] == message


def test_a_poison_message_is_one_event_and_the_deaths_it_caused_are_one_issue(lane: ChaosLane, ingest: Ingest) -> None:
    lane.start(processes=1, threads=1)
    message = lane.send("poison", "poison", "sigkill", "strike")
    lane.open("strike")
    wait_until(lambda: lane.dead() == {message}, 30)
    lane.end()
    told = Counter(event["tags"]["event"] for event in ingest.events())
    assert (told["message_condemned"], told["worker_died"]) == (1, 1)
    by_event = {event["tags"]["event"]: event for event in ingest.events()}
    assert tags(by_event["message_condemned"], "process", "lane", "queue", "outcome") == (
        *("supervisor", "jobs", QUEUE),
        "condemned",
    )
    assert by_event["worker_died"]["fingerprint"] == ["worker_died", "jobs"]


class TestOutage:
    """On a server of its own, which can be stopped."""

    @pytest.fixture
    def redis_url(self, tmp_path: Path) -> Iterator[str]:
        with embedded.servers(tmp_path / "servers", embedded.Wanted(postgres=False)) as urls:
            yield urls.redis_url

    def test_a_redis_that_is_away_is_one_issue_a_fleet_and_one_event_a_process(
        self, lane: ChaosLane, ingest: Ingest, redis_client: redis.Redis
    ) -> None:
        for _ in range(2):
            lane.start(processes=3, threads=2)
        server = int(redis_client.info("server")["process_id"])

        def logged(event: str) -> int:
            return sum(len(running.logged(event)) for running in lane.started)

        for times in (1, 2):  # twice away within the quarter of an hour
            os.kill(server, signal.SIGSTOP)
            try:
                wait_until(lambda least=6 * times: logged("redis_lost") >= least, 30)
            finally:
                os.kill(server, signal.SIGCONT)
            wait_until(lambda least=6 * times: logged("redis_back") >= least, 30)
        wait_until(lambda: len(ingest.events()) >= 6)
        lane.end()
        # Ending a lane twice in a row, as `end` does, kills what has not drained: that is another issue.
        told = [event for event in ingest.events() if event["tags"]["event"] != "worker_killed"]
        assert {tuple(event["fingerprint"]) for event in told} == {("redis-outage",)}
        assert 6 <= len(told) <= 8
        assert set(Counter(event["tags"].get("worker", event["tags"]["event"]) for event in told).values()) == {1}
