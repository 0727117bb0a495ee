"""How many messages a worker holds follows its pace, and what turns out to be long goes back."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from fleet.broker.pace import MOST, Pace
from tests.broker.station import Station
from tests.waiting import wait_until

Keep = Callable[[Station], Station]


def test_long_jobs_that_were_fetched_behind_short_ones_are_handed_back_to_an_idle_worker(
    redis_url: str, namespace: str, stations: Keep
) -> None:
    crew = [stations(Station(redis_url, namespace)) for _ in range(2)]
    running: Counter[int] = Counter()
    held: list[int] = []
    go_on = threading.Event()

    def declare(whose: int) -> None:
        def job(long: bool) -> None:
            held.append(crew[0].workers[0].pump.held if whose == 0 else 0)
            if long:
                running[whose] += 1
                go_on.wait(20)

        crew[whose].actor(job, actor_name="job")

    for whose in range(2):
        declare(whose)
    job = crew[0].broker.get_actor("job")
    for long in [False] * 5_000 + [True] * 12:
        job.send(long)
    crew[0].work(threads=2)
    wait_until(lambda: running[0] == 2, 30)
    assert max(held) > 8  # it took more than its threads' room while they were short
    crew[1].work(threads=2)
    wait_until(lambda: running[1] == 2)
    go_on.set()
    crew[0].until_empty()
    assert running.total() == 12


def test_a_fixed_room_stays_whatever_the_pace() -> None:
    pace = Pace(7, 7, now=0.0)
    pace.ended(100_000, now=1.0)
    assert pace.room == 7


def test_room_grows_with_the_pace_up_to_the_most_and_is_the_threads_own_once_nothing_ends() -> None:
    pace = Pace(4, MOST, now=0.0)
    assert pace.room == 4
    for turn in range(1, 40):
        pace.ended(100, now=turn * 0.01)
    assert 90 <= pace.room <= 100  # 10,000 a second for 10 ms
    assert pace.excess(held=90, now=0.4) == 0
    assert pace.excess(held=90, now=0.45) == 86
    assert pace.room == 4
