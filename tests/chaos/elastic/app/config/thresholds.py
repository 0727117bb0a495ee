"""The rule as it is, on a machine that counts as large enough for four chains."""

from __future__ import annotations

from beat.balancer import BalancerRules

BALANCER = BalancerRules(cores=8.0)
THRESHOLDS: dict[str, object] = {}
