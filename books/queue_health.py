"""Has the queues read and judged from the housekeeping lane, beside the leading beat (`fleet.health`).

Not guaranteed: that a jam of the housekeeping lane itself is told from here; the beat, which judges too, says that.
"""

from __future__ import annotations

from fleet import health
from fleet.app import process_broker


def check() -> int:
    """Read every queue and judge it by `config/thresholds.py`; returns how many alerts are open."""
    return len(health.look(process_broker(), "housekeeping"))
