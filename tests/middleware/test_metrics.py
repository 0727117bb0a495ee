"""Messages are counted by how they ended; running jobs are counted up and down."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import prometheus_client
import pytest
from prometheus_client import REGISTRY

from fleet import Budget, metrics, queue
from fleet.clock import clock

Counted = Callable[..., float]
SHORT = Budget(timedelta(milliseconds=100), timedelta(seconds=5), because="a test waits for its end")


def test_each_end_is_counted_under_its_word(house: Any, counted: Counted) -> None:
    work = queue("work")

    def fail() -> None:
        raise ValueError("not tonight")

    work.actor(name="done")(lambda: None).send()
    work.actor(name="failed")(fail).send()
    work.actor(name="expired")(lambda: None).send_with_options(expires_at=10**12)
    work.actor(name="deadline", budget=SHORT)(lambda: threading.Event().wait(0.05) or _spin()).send()
    house.work()
    house.until_idle()
    house.stop()
    for actor in ("done", "failed", "expired", "deadline"):
        assert counted("fleet_messages_total", queue="work", actor=actor, outcome=actor) == 1
    assert counted("fleet_messages_total", queue="work", actor="failed", outcome="retried") == 2
    assert counted("fleet_jobs_running", queue="work") == 0


def _spin() -> None:
    while True:
        threading.Event().wait(0.005)


def test_a_running_job_is_counted_while_it_runs_and_timed_when_it_ends(house: Any, counted: Counted) -> None:
    runs, go = threading.Event(), threading.Event()

    def hold() -> None:
        runs.set()
        assert go.wait(10)

    queue("work").actor(name="hold")(hold).send()
    house.work()
    assert runs.wait(10)
    assert counted("fleet_jobs_running", queue="work") == 1
    assert counted("fleet_job_seconds_count", queue="work", actor="hold") == 0
    go.set()
    house.until_idle()
    house.stop()
    assert counted("fleet_jobs_running", queue="work") == 0
    assert counted("fleet_job_seconds_count", queue="work", actor="hold") == 1


def test_a_skipped_message_is_not_timed(house: Any, counted: Counted) -> None:
    queue("work").actor(name="late")(lambda: None).send_with_options(expires_at=10**12)
    house.work()
    house.until_idle()
    house.stop()
    assert counted("fleet_job_seconds_count", queue="work", actor="late") == 0


def test_threads_that_all_count_their_processs_first_message_lose_none(
    house: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metrics are made at the first count, which in a lane of 128 threads many make at once."""

    def slow_counter(*args: Any, **kwargs: Any) -> Any:
        threading.Event().wait(0.1)  # as importing the library takes in a fresh process
        return counter(*args, **kwargs)

    counter = prometheus_client.Counter
    monkeypatch.setattr(prometheus_client, "Counter", slow_counter)
    _forget_metrics()
    queue("work").actor(name="job")(lambda: None).send_many(() for _ in range(40))
    house.work()
    house.until_idle()
    house.stop()
    assert REGISTRY.get_sample_value(
        "fleet_messages_total", {"queue": "work", "actor": "job", "outcome": "done"}
    ) == pytest.approx(40)


def _forget_metrics() -> None:
    for metric in metrics.EXPORTED:
        with suppress(KeyError):  # one that nothing counted yet
            REGISTRY.unregister(REGISTRY._names_to_collectors[metric.name])
    metrics._registered.cache_clear()


def test_the_lag_of_a_start_is_from_when_the_message_was_due(house: Any, counted: Counted) -> None:
    work = queue("work")

    an_hour_ago = int((clock.real_now() - timedelta(hours=1)).timestamp() * 1000)
    message = work.actor(name="waited")(lambda: None).message()
    house.broker.enqueue(message.copy(message_timestamp=an_hour_ago))
    work.actor(name="delayed")(lambda: None).send_with_options(delay=1_000)
    house.work()
    house.until_idle()
    house.stop()
    assert counted("fleet_start_lag_seconds_count", queue="work") == 2
    assert 3600 < counted("fleet_start_lag_seconds_sum", queue="work") < 3601, "and a delay is no lag"
