"""What a supervisor does about jobs and processes is counted, and is in its `/metrics`."""

from __future__ import annotations

import re

from tests.chaos.workers.lane import ChaosLane
from tests.waiting import wait_until
from tests.workers.test_supervisor import metric


def test_jobs_that_are_taken_away_and_processes_that_die_are_counted_by_why(lane: ChaosLane) -> None:
    running = lane.start(processes=1, threads=2, hung_hard=2.0)
    (url,) = set(re.findall(r"http://127\.0\.0\.1:\d+/metrics", running.log.read_text()))

    def counted(name: str, labels: str) -> float:
        return metric(url, rf"fleet_{name}\{{{labels}\}}")

    assert counted("messages_lost_total", 'queue="jobs",reason="hard_budget"') == 0
    assert counted("worker_ends_total", 'how="died",lane="jobs"') == 0
    assert counted("worker_starts_total", 'lane="jobs"') == 1
    lane.send("hang", "hung", "sleep", 4.0)
    wait_until(lambda: counted("messages_lost_total", 'queue="jobs",reason="hard_budget"') == 1, 30)
    lane.send("poison", "poison", "sigkill", "strike")
    lane.open("strike")
    wait_until(lambda: counted("messages_lost_total", 'queue="jobs",reason="poison"') == 1, 30)
    lane.until_settled(30)
    assert counted("worker_ends_total", 'how="died",lane="jobs"') == 1
    assert counted("worker_ends_total", 'how="suspect",lane="jobs"') == 1
    assert counted("worker_starts_total", 'lane="jobs"') >= 2
