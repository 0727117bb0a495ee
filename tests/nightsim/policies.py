"""What the balancer is compared with: the schedule, work without a controller, and plans that know the night.

A policy is the engine's mode, its parameters, the weight of elastic processes, and when the audit runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tests.nightsim import engine
from tests.nightsim.night import H

NICE = 0.015  # the weight of nice 19 (15/1024)
AUDIT = 3.25 * H


class Policy(NamedTuple):
    mode: int
    parameters: np.ndarray
    weight: float = NICE
    audit: float = AUDIT


def parameters(
    t_ai: float = 2 * H,
    t_ev: float = 2 * H,
    *,
    expires: float = 2 * H,
    k_day: int = 1,
    opens: float = 0.5 * H,
    day: float = 6.5 * H,
    deadline: float = 6.25 * H,
    more: Sequence[float] = (),
    chunk: int = 20,
) -> np.ndarray:
    """The engine's vector: 0 and 1 slots, 2 expiry, 3 chains by day, 4-6 window, from 7 the mode's own, 15 chunk."""
    vector = np.zeros(16)
    vector[:7] = t_ai, t_ev, expires, k_day, opens, day, deadline
    vector[7 : 7 + len(more)] = more
    vector[15] = chunk
    return vector


NOTHING = Policy(engine.M_DRAIN, parameters(opens=9 * H, k_day=0), 1.0)
DECIDED = Policy(engine.M_DECIDE, parameters())
WITHOUT = {
    "all at 02:00": Policy(engine.M_STATIC, parameters(), 1.0, 2.5 * H),
    "static minutes": Policy(engine.M_STATIC, parameters(4 * H, 5 * H), 1.0),
    "static minutes, nice": Policy(engine.M_STATIC, parameters(4 * H, 5 * H)),
    "slots, chunks, nice": Policy(engine.M_DRAIN, parameters(opens=4 * H, more=(5 * H,))),
    "window, chunks": Policy(engine.M_DRAIN, parameters(), 1.0),
    "window, chunks, nice": Policy(engine.M_DRAIN, parameters()),
}


def plans() -> list[Policy]:
    """The oracle's menu: it knows when the sync really runs and when people come."""
    return [
        Policy(
            engine.M_PLAN,
            parameters(k_day=0 if day < 6.5 * H else 1, day=day, deadline=day, more=(in_sync, evals_in_sync, 4, evals)),
        )
        for in_sync in (0, 2, 4)
        for evals_in_sync in (0, 3, 6)
        for evals in (4, 6)
        for day in (5.0 * H, 6.25 * H, 6.75 * H)
    ]
