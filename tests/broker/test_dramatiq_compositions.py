"""Results, pipelines and groups: the same test on Dramatiq's broker and on ours."""

from __future__ import annotations

from typing import Any

import pytest
from dramatiq import group
from dramatiq.results import ResultFailure, ResultMissing

from tests.broker.sides import KEPT_MS, Side
from tests.waiting import wait_until


def add(x: int, y: int) -> int:
    return x + y


def test_a_result_can_be_asked_for_and_waited_for(side: Side) -> None:
    kept = side.actor(add, store_results=True)
    sent = kept.send(1, 2)
    with pytest.raises(ResultMissing):
        sent.get_result()
    side.work()
    assert sent.get_result(block=True, timeout=5_000) == 3
    key = side.results.build_message_key(sent)
    assert 0 < side.results.client.pttl(key) <= KEPT_MS


def test_a_result_has_the_age_limit_and_the_fate_that_its_actor_chose(side: Side) -> None:
    brief = side.actor(add, actor_name="brief", store_results=True, result_ttl=900)
    dropped = side.actor(add, actor_name="dropped")
    messages = brief.send(1, 2), dropped.send(1, 2)
    side.work()
    side.join()
    with pytest.raises(ResultMissing):
        messages[1].get_result()
    wait_until(lambda: not side.results.client.exists(side.results.build_message_key(messages[0])), 3)


def test_a_failed_actors_result_is_its_exception_once_its_tries_are_over(side: Side) -> None:
    def fail() -> None:
        raise ValueError("no such account")

    sent = side.actor(fail, store_results=True, max_retries=1).send()
    side.work()
    with pytest.raises(ResultFailure) as caught:
        sent.get_result(block=True, timeout=5_000)
    assert (caught.value.orig_exc_type, caught.value.orig_exc_msg) == ("ValueError", "no such account")
    side.join()
    assert side.dead() == 1


def test_a_pipeline_hands_each_result_to_the_next_unless_told_to_ignore_it(side: Side) -> None:
    plus = side.actor(add, store_results=True)
    ran: list[tuple[int, ...]] = []
    alone = side.actor(lambda *seen: ran.append(seen), actor_name="alone")
    pipe = plus.message(1, 2) | plus.message(10) | plus.message(100)
    ignoring = plus.message(1, 1) | alone.message_with_options(args=(7,), pipe_ignore=True)
    side.work()
    assert pipe.run().get_result(block=True, timeout=5_000) == 113
    assert list(pipe.get_results(block=True, timeout=5_000)) == [3, 13, 113]
    assert (pipe.completed, pipe.completed_count) == (True, 3)
    ignoring.run(delay=50)
    wait_until(lambda: ran == [(7,)])


def test_a_pipeline_ends_with_the_job_that_failed(side: Side) -> None:
    ran: list[Any] = []

    def fail() -> None:
        raise ValueError("no")

    failing, after = side.actor(fail, max_retries=0), side.actor(ran.append, actor_name="after")
    side.work()
    (failing.message() | after.message()).run()
    side.join()
    assert (ran, side.dead()) == ([], 1)


def test_a_group_calls_back_once_after_its_last_job_also_where_one_is_a_pipeline_and_one_is_tried_again(
    side: Side,
) -> None:
    tries: list[int] = []
    called: list[int] = []

    def flaky(n: int) -> int:
        tries.append(n)
        if tries.count(n) < 2:
            raise ValueError("not yet")
        return n

    plus, retried = side.actor(add, store_results=True), side.actor(flaky, store_results=True)
    done = side.actor(lambda: called.append(len(tries)), actor_name="done")
    jobs = group([plus.message(1, 1), retried.message(5), plus.message(1, 2) | plus.message(3)])
    jobs.add_completion_callback(done.message())
    side.work()
    jobs.run()
    jobs.wait(timeout=5_000)
    assert list(jobs.get_results()) == [2, 5, 6]
    wait_until(lambda: called)
    side.join()
    assert called == [2]


def test_a_large_group_runs_each_of_its_messages_once(side: Side) -> None:
    plus = side.actor(add, store_results=True)
    jobs = group(plus.message(n, 1).copy(options={"note": n}) for n in range(60)).run()
    side.work(threads=4)
    assert list(jobs.get_results(block=True, timeout=10_000)) == list(range(1, 61))
