from datetime import timedelta

from fleet import Budget, queue

bench = queue("bench")


@bench.actor(name="tick_bench", budget=Budget(timedelta(seconds=5), timedelta(seconds=9), because="one push to Redis"))
def tick() -> None:
    """The worker's own process has another body under this name: the measured one."""
