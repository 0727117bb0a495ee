"""What becomes one issue at Sentry though many find it, and which lines of the log are events."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import redis

from fleet import Retry, queue, sentry
from tests.middleware.ingest import Ingest
from tests.waiting import wait_until

SECRET = "DE89370400440532013000"
ONCE = Retry(attempts=1, first=timedelta(seconds=1), longest=timedelta(seconds=1))


def test_a_redis_that_is_away_is_one_issue_and_one_event_a_process_whatever_found_it(
    house: Any, ingest: Ingest
) -> None:
    def reads() -> None:
        try:
            raise redis.ConnectionError("Error 111 connecting to 127.0.0.1:6379. Connection refused.")
        except redis.ConnectionError as error:
            raise LookupError("no answer") from error

    for name in ("reads", "looks"):
        queue("work").actor(name=name, retry=ONCE)(reads).send()
    house.work()
    wait_until(lambda: len(house.dead()) == 2)
    sentry.heard({"event": "redis_lost", "logger": "fleet.broker.outages", "worker": "w"}, "error")
    sentry.heard({"event": "beat_deposed", "logger": "beat.leader", "reason": "Redis did not answer: x"}, "error")
    house.stop()
    assert [event["fingerprint"] for event in ingest.events()] == [["redis-outage"]]


def test_what_the_engine_logs_as_an_error_is_one_event_a_while_and_an_applications_only_if_critical(
    house: Any, ingest: Ingest
) -> None:
    house.work()
    for _ in range(3):
        sentry.heard({"event": "worker_died", "logger": "fleet.x", "lane": "a", "pid": 17}, "error")
    sentry.heard({"event": "worker_died", "logger": "fleet.x", "lane": "b", "pid": 18}, "error")
    sentry.heard({"event": "worker_retired", "logger": "fleet.x", "lane": "b"}, "warning")
    sentry.heard({"event": "row_odd", "logger": "books.x"}, "error")
    sentry.heard({"event": "row_bad", "logger": "books.x", "iban": SECRET, "rows": 3}, "critical")
    sentry.heard({"event": "job_failed", "logger": "middleware.log_context"}, "error")
    house.stop()
    assert [(one["fingerprint"], one["level"]) for one in ingest.events()] == [
        (["worker_died", "a"], "error"),
        (["worker_died", "b"], "error"),
        (["row_bad"], "fatal"),
    ]
    assert ingest.events()[-1]["extra"] == {"iban": "[removed]", "rows": 3}
