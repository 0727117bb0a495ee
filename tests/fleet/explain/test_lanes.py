"""Who serves a lane, what runs and waits in it, and what is wrong."""

from __future__ import annotations

from datetime import timedelta

from fleet import alerts
from fleet.alerts import Finding, Rule
from fleet.clock import clock
from fleet.workers.presence import Job, Presence, Report, present
from tests.fleet.explain.conftest import MINUTE, SECOND, House
from tests.waiting import wait_until


def test_a_lane_says_who_serves_it_what_runs_how_old_and_what_is_wrong(house: House) -> None:
    for _ in range(3):
        house.send()
    jobs = (Job("m-1", "job", clock.real_now() - 150 * SECOND, "work", "body", 2 * MINUTE, 3 * MINUTE),)
    reports = [
        Report("worker", "banks", pid=7, host="night-1", jobs=jobs, phase="serving"),
        Report("worker", "banks", pid=8, host="night-1", phase="retiring"),
    ]
    finding = Finding("queue_old", "work", "oldest_age", "1h", "30m", "A due message has not been begun.", "banks")
    other = Finding("queue_old", "mails", "oldest_age", "1h", "30m", "It is another lane's.", "mail")
    alerts.judge(house.broker, [finding, other], {"queue_old": Rule(timedelta(0), MINUTE)})
    presence = Presence(house.client, house.broker.namespace, lambda: reports)
    presence.start()
    wait_until(lambda: len(present(house.client, house.broker.namespace)) == 2)
    told = house.told("banks")
    presence.stop()
    assert told[0] == "It waits for a bank; queues work"
    assert told[1] == "1 of 2 processes serve it, on night-1; 1 more are retiring."
    assert told[2].startswith("1 jobs run in 8 threads; the longest, job, on night-1, pid 7, for 2m3")
    assert "(over its soft budget)" in told[2]
    assert told[3].startswith("work: 3 wait, the oldest due for ")
    assert "ALERT queue_old of work since" in told[4] and "#queue" in told[4]
    assert len(told) == 6 and told[5].startswith("A job's row is terminal at the latest 8m after its hard budget")


def test_a_lane_that_nobody_serves_says_what_to_start(house: House) -> None:
    assert "NO process serves it: start `fleet work banks`, or look at its log." in house.told("banks")
    assert "Nothing runs in it." in house.told("banks")
