"""One lane, whose shape the test gives as JSON; durations are seconds there."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any

from fleet import Budget, Lane, Retry

SHAPE: dict[str, Any] = json.loads(os.environ["TEST_LANE"])
_hard = SHAPE.pop("hung_hard", 2.0)
_drain = SHAPE.pop("drain", 5.0)

HUNG = Budget(timedelta(seconds=_hard / 2), timedelta(seconds=_hard), because="what the test waits for a hung job")

LANES = [
    Lane(
        "jobs",
        queues=["jobs"],
        waits_for="a file of the test",
        budget=Budget(timedelta(minutes=2), timedelta(minutes=3), because="the slowest test here waits half a minute"),
        retry=Retry(attempts=3, first=timedelta(seconds=1), longest=timedelta(seconds=1)),
        drain=timedelta(seconds=_drain),
        **SHAPE,
    )
]
