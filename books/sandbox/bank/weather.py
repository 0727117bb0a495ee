"""What goes wrong at the sandbox bank, and how long it takes: latency, slow episodes, failures, limits.

Every draw is a function of (seed, request), not of the order in which requests come, so that a night with the same
seed meets the same weather. What is remembered is what must happen once: a request fails at most once, an account's
short limit ends, a malformed answer is not repeated. Latencies and resets are night durations.

Not guaranteed: the same weather after a restart of the server; what was remembered starts anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from hashlib import blake2b
from statistics import NormalDist

from books.sandbox.bank.connections import Connection, expired_requisition
from books.sandbox.bank.ledger import BERLIN

CALLS_A_DAY = 12  # successful calls for each account and scope in 24 hours; the free contract's is 4
FAILURES = 0.02
SLOW_FACTOR = 3.0
_MEDIAN_SECONDS = {"requisitions": 1.0, "account": 2.0, "balances": 2.5, "transactions": 3.5}
_SIGMA = 0.45
_NORMAL = NormalDist()


@dataclass(slots=True)
class Quota:
    """What is left of one account's calls in one scope; starts anew 24 hours after the first."""

    resets: datetime
    remaining: int = CALLS_A_DAY


class Weather:
    """The seeded weather of one server's life."""

    def __init__(self, seed: int, connections: list[Connection]) -> None:
        self._seed = seed
        self.expired = frozenset(account.id for account in expired_requisition(connections).accounts)
        healthy = sorted(
            (account.id for connection in connections for account in connection.accounts
             if account.id not in self.expired),
            key=lambda account: self._draw("rank", account),
        )  # fmt: skip
        few = min(5, len(healthy) // 3)
        self._limits = {
            account: timedelta(seconds=20 + 400 * self._draw("reset", account)) for account in healthy[:few]
        }
        self._limited_until: dict[str, datetime] = {}
        self._malformed = {healthy[few]}
        self._failed: set[str] = set()
        self._quotas: dict[tuple[str, str], Quota] = {}
        self._calls: dict[str, int] = {}

    def latency(self, scope: str, request: str, now: datetime) -> timedelta:
        """Log-normal around the scope's median; three times as long in a slow episode."""
        call = self._calls[request] = self._calls.get(request, 0) + 1
        spread = math.exp(_SIGMA * _NORMAL.inv_cdf(self._draw("latency", f"{request} {call}")))
        slow = SLOW_FACTOR if any(start <= now < end for start, end in self.slow_episodes(now)) else 1.0
        return timedelta(seconds=_MEDIAN_SECONDS[scope] * spread * slow)

    def slow_episodes(self, now: datetime) -> list[tuple[datetime, datetime]]:
        """Two a day (Berlin's): one in the quarter of an hour after the first sync starts, one at any time."""
        day = now.astimezone(BERLIN).date()
        starts = (60 + 12 * self._draw("sync episode", str(day)), 24 * 60 * self._draw("episode", str(day)))
        lengths = (4 + 4 * self._draw("sync length", str(day)), 10 + 20 * self._draw("length", str(day)))
        midnight = _midnight(day)
        return [
            (midnight + timedelta(minutes=start), midnight + timedelta(minutes=start + length))
            for start, length in zip(starts, lengths, strict=True)
        ]

    def failure(self, request: str) -> int | None:
        """The 5xx that this request is answered with; never twice for the same request."""
        draw = self._draw("failure", request)
        if draw >= FAILURES or request in self._failed:
            return None
        self._failed.add(request)
        return (500, 502, 503)[int(draw / FAILURES * 3)]

    def short_limit(self, account: str, now: datetime) -> timedelta | None:
        """What is left of the account's one short limit, which its first call starts; None if it has none (left)."""
        lasts = self._limits.get(account)
        if lasts is None:
            return None
        left = self._limited_until.setdefault(account, now + lasts) - now
        return left if left > timedelta(0) else None

    def quota(self, account: str, scope: str, now: datetime) -> Quota:
        """The account's calls in this scope as they stand."""
        quota = self._quotas.get((account, scope))
        if quota is None or quota.resets <= now:
            quota = self._quotas[account, scope] = Quota(resets=now + timedelta(days=1))
        return quota

    def malformed(self, account: str) -> bool:
        """Whether this answer is cut in half; once, for one account."""
        once = account in self._malformed
        self._malformed.discard(account)
        return once

    def _draw(self, kind: str, key: str) -> float:
        """A number in (0, 1) that belongs to the key."""
        digest = blake2b(f"{self._seed} {kind} {key}".encode(), digest_size=8).digest()
        return (int.from_bytes(digest) + 0.5) / 2**64


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), BERLIN)
