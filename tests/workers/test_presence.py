"""Who is there: a report a second, gone after ten."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path

import pytest
import redis

from fleet.broker import keys
from fleet.clock import clock
from fleet.errors import NotServedHere
from fleet.workers.board import Board, ChildPhase, Phase, Slot, SlotWriter
from fleet.workers.presence import (
    Job,
    Presence,
    Report,
    jobs_of,
    present,
    report_of_child,
    require_here,
)
from tests.waiting import wait_until


def test_a_report_comes_back_as_it_was_given(redis_client: redis.Redis, namespace: str) -> None:
    since = clock.real_now() - timedelta(minutes=1)
    budgeted = Job("message-1", "greet", since, "mail", "body", timedelta(minutes=5), timedelta(minutes=7.5))
    given = Report("worker", "main", worker_id="w", jobs=(budgeted, Job("message-2", "greet", since)), phase="retiring")
    presence = Presence(redis_client, namespace, lambda: given)
    presence.start()
    try:
        (seen,) = wait_until(lambda: present(redis_client, namespace), 30)
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
        wait_until(lambda: len(present(redis_client, namespace)) == 2, 30)
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
    wait_until(lambda: present(redis_client, namespace), 30)
    presence._stopped.set()  # as a SIGKILL would, without taking the report back
    presence._thread.join(5)
    (process,) = redis_client.hkeys(keys.processes(namespace))
    redis_client.zincrby(keys.processes_seen(namespace), -9_000, process)
    assert len(present(redis_client, namespace)) == 1
    redis_client.zincrby(keys.processes_seen(namespace), -1_500, process)
    assert present(redis_client, namespace) == []
    assert redis_client.hlen(keys.processes(namespace)) == 0


def test_reports_come_in_order_of_kind_name_and_process(redis_client: redis.Redis, namespace: str) -> None:
    given = [Report("worker", "b"), Report("worker", "a"), Report("supervisor", "z"), Report("beat", "beat")]
    presences = [Presence(redis_client, namespace, lambda report=report: report) for report in given]
    for presence in presences:
        presence.start()
    try:
        seen = wait_until(lambda: len(present(redis_client, namespace)) == 4 and present(redis_client, namespace), 30)
        assert [report.name for report in seen] == ["beat", "z", "a", "b"]
    finally:
        for presence in presences:
            presence.stop()


def test_a_supervisor_reports_for_its_children_and_takes_back_the_one_that_is_gone_at_once(
    redis_client: redis.Redis, namespace: str
) -> None:
    pids, seen = [101, 102], lambda: [(report.kind, report.pid) for report in present(redis_client, namespace)]

    def reports() -> Iterator[Report]:
        yield Report("supervisor", "main", pid=100)
        yield from (Report("worker", "main", pid=pid) for pid in pids)

    presence = Presence(redis_client, namespace, reports)
    presence.start()
    try:
        wait_until(lambda: seen() == [("supervisor", 100), ("worker", 101), ("worker", 102)], 30)
        before = set(redis_client.hkeys(keys.processes(namespace)))
        pids[:] = [102, 103]
        wait_until(lambda: seen() == [("supervisor", 100), ("worker", 102), ("worker", 103)], 5)
        after = set(redis_client.hkeys(keys.processes(namespace)))
        assert len(before & after) == 2, "those that stay keep their ids"
        assert redis_client.zcard(keys.processes_seen(namespace)) == 3
    finally:
        presence.stop()
    assert redis_client.exists(keys.processes(namespace), keys.processes_seen(namespace)) == 0


def test_a_report_that_cannot_be_made_once_is_made_a_second_later(redis_client: redis.Redis, namespace: str) -> None:
    calls = []

    def report() -> Report:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("operation forbidden on released memoryview object")
        return Report("supervisor", "main")

    presence = Presence(redis_client, namespace, report)
    presence.start()
    try:
        wait_until(lambda: present(redis_client, namespace), 5)
    finally:
        presence.stop()


def test_what_another_version_reports_is_read_as_far_as_it_is_known(redis_client: redis.Redis, namespace: str) -> None:
    job = {"message_id": "m", "actor": "greet", "since": clock.real_now().isoformat(), "mood": "good"}
    raw = {"kind": "worker", "name": "main", "pid": 7, "host": "h", "jobs": [job], "colour": "green"}
    redis_client.hset(keys.processes(namespace), "another", json.dumps(raw))
    (report,) = present(redis_client, namespace)
    assert (report.pid, report.jobs[0].actor, report.jobs[0].soft) == (7, "greet", None)


@pytest.mark.parametrize(
    ("kind", "phase", "serves"),
    [("worker", "serving", True), ("worker", "starting", False), ("worker", "retiring", False), ("beat", "", True)],
)
def test_a_host_serves_a_lane_by_a_child_that_takes_messages(
    redis_client: redis.Redis, namespace: str, kind: str, phase: str, serves: bool
) -> None:
    presence = Presence(redis_client, namespace, lambda: Report(kind, "main", phase=phase))
    presence.start()
    try:
        wait_until(lambda: present(redis_client, namespace), 30)
        with nullcontext() if serves else pytest.raises(NotServedHere, match="No process that serves 'main'"):
            require_here(redis_client, namespace, "main")
    finally:
        presence.stop()


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    made = Board.create(tmp_path / "board", 4)
    yield made
    made.remove()


def begin(board: Board, number: int, *, id: str, message_id: str, started: float, budgeted: bool = True) -> SlotWriter:
    soft, hard = (started + 300, started + 420) if budgeted else (math.inf, math.inf)
    writer = board.writer(number)
    writer.begin(
        delivery=1, id=id, queue="banks", actor="sync", message_id=message_id, started=started, soft=soft, hard=hard
    )
    return writer


def test_the_slots_of_a_board_become_jobs_with_their_budget_and_phase_longest_first(board: Board) -> None:
    now = clock.monotonic()
    begin(board, 0, id="i-0", message_id="young", started=now - 1)
    begin(board, 2, id="i-2", message_id="old", started=now - 192).body()
    begin(board, 3, id="i-3", message_id="over", started=now - 60, budgeted=False).clear()
    old, young = jobs_of(board.read_all(), now)
    assert old.message_id == "old"
    assert (old.actor, old.queue, old.phase) == ("sync", "banks", "body")
    assert (old.soft, old.hard) == (timedelta(minutes=5), timedelta(minutes=7))
    assert abs(clock.real_now() - old.since - timedelta(seconds=192)) < timedelta(seconds=1)
    assert (young.message_id, young.phase) == ("young", "prefetched")


def test_a_slot_without_budgets_or_with_ids_that_do_not_fit_is_a_job_all_the_same(board: Board) -> None:
    now = clock.monotonic()
    begin(board, 0, id="i" * 200, message_id="m" * 200, started=now - 2, budgeted=False)
    begin(board, 1, id="short", message_id="m" * 200, started=now - 1, budgeted=False)
    by_digest, by_id = jobs_of(board.read_all(), now)
    assert by_digest.message_id == f"digest {blake2b(b'i' * 200, digest_size=16).hexdigest()}"
    assert by_id.message_id == "short"
    assert (by_id.soft, by_id.hard) == (None, None)


def test_a_slot_that_the_child_spoilt_is_shown_as_one_that_began_now() -> None:
    (job,) = jobs_of([Slot(0, Phase.BODY)], clock.monotonic())
    assert (job.message_id, job.phase) == ("unreadable", "body")
    assert clock.real_now() - job.since < timedelta(seconds=1)


def test_a_childs_report_is_made_of_its_board_alone(board: Board) -> None:
    begin(board, 1, id="i", message_id="m", started=clock.monotonic() - 5).body()
    board.worker_id, board.phase_of_child = "w-1", ChildPhase.SERVING
    report = report_of_child("main", 4711, board, clock.monotonic())
    assert (report.kind, report.name, report.pid, report.worker_id) == ("worker", "main", 4711, "w-1")
    assert report.serves
    assert [job.message_id for job in report.jobs] == ["m"]
