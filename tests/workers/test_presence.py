"""Who is there: a report a second, gone after ten."""

from __future__ import annotations

import os
import threading
from datetime import timedelta

import redis

from fleet.broker import keys
from fleet.clock import clock
from fleet.workers.presence import Job, Presence, Report, RunningJobs, present
from tests.waiting import wait_until


def test_a_report_comes_back_as_it_was_given(redis_client: redis.Redis, namespace: str) -> None:
    job = Job("message-1", "greet", clock.real_now() - timedelta(minutes=1))
    given = Report("worker", "main", worker_id="w", jobs=(job,))
    presence = Presence(redis_client, namespace, lambda: given)
    presence.start()
    try:
        (seen,) = wait_until(lambda: present(redis_client, namespace), 5)
        assert seen == given
        assert seen.pid == os.getpid()
    finally:
        presence.stop()


def test_a_process_that_ends_takes_its_report_back_and_leaves_the_others(
    redis_client: redis.Redis, namespace: str
) -> None:
    first = Presence(redis_client, namespace, lambda: Report("beat", "first"))
    second = Presence(redis_client, namespace, lambda: Report("beat", "second"))
    first.start()
    second.start()
    try:
        wait_until(lambda: len(present(redis_client, namespace)) == 2, 5)
        first.stop()
        assert [report.name for report in present(redis_client, namespace)] == ["second"]
    finally:
        second.stop()
    assert present(redis_client, namespace) == []


def test_a_report_that_was_not_renewed_for_ten_seconds_is_pruned_by_whoever_looks(
    redis_client: redis.Redis, namespace: str
) -> None:
    presence = Presence(redis_client, namespace, lambda: Report("worker", "main"))
    presence.start()
    wait_until(lambda: present(redis_client, namespace), 5)
    presence._stopped.set()  # as a SIGKILL would, without taking the report back
    presence._thread.join(5)
    redis_client.zincrby(keys.processes_seen(namespace), -9_000, presence._id)
    assert len(present(redis_client, namespace)) == 1
    redis_client.zincrby(keys.processes_seen(namespace), -1_500, presence._id)
    assert present(redis_client, namespace) == []
    assert redis_client.hlen(keys.processes(namespace)) == 0


def test_reports_come_in_order_of_kind_name_and_process(redis_client: redis.Redis, namespace: str) -> None:
    given = [Report("worker", "b"), Report("worker", "a"), Report("supervisor", "z"), Report("beat", "beat")]
    presences = [Presence(redis_client, namespace, lambda report=report: report) for report in given]
    for presence in presences:
        presence.start()
    try:
        seen = wait_until(lambda: len(present(redis_client, namespace)) == 4 and present(redis_client, namespace), 5)
        assert [report.name for report in seen] == ["beat", "z", "a", "b"]
    finally:
        for presence in presences:
            presence.stop()


def test_running_jobs_are_noted_by_thread_and_listed_by_age() -> None:
    running, gate, noted = RunningJobs(), threading.Event(), threading.Event()

    def other() -> None:
        running.started("second", "greet")
        noted.set()
        gate.wait(10)
        running.ended()

    running.started("first", "greet")
    thread = threading.Thread(target=other)
    thread.start()
    noted.wait(10)
    assert [job.message_id for job in running.now()] == ["first", "second"]
    running.ended()
    assert [job.message_id for job in running.now()] == ["second"]
    gate.set()
    thread.join(10)
    running.ended()
    assert running.now() == ()
