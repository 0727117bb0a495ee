from datetime import timedelta

from fleet import Budget, Lane, Retry

BUDGET = Budget(timedelta(seconds=30), timedelta(seconds=60), because="nothing here waits for anybody else")
RETRY = Retry(attempts=3, first=timedelta(seconds=1), longest=timedelta(minutes=1))
LANES = [Lane("bench", ("bench",), waits_for="nothing", processes=1, threads=2, budget=BUDGET, retry=RETRY)]
