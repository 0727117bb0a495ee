"""Random nights: ten kinds, each drawn once a seed, so that every policy faces the same night.

Times are seconds behind 00:00. Accounts: 5,000, each with 1 + Poisson(4) calls of a lognormal latency (median 2-4 s a
night) at an aggregator that serves 45-60 at once. Categorizing: about 20,000 rows of 0.3-2 s of a core, 30 % there at
midnight, 70 % born as accounts finish. Evals: 2,000. People: one in two minutes by night, fifteen a minute by day.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

H = 3600.0
KINDS = (
    *("normal", "slow3x", "early", "odd_hour", "backlog2x", "stale_probe", "slow3x+stale", "slow3x+backlog2x"),
    *("early_humans", "night_burst"),
)


def _none() -> np.ndarray:
    return np.zeros(0)


@dataclass
class Drawn:
    """All that is random in a night."""

    t_sync: float = 2 * H  # when the beat sends the bank's fan-out
    k_agg: int = 50  # calls that the aggregator serves at once
    lat_mult: float = 1.0
    epi: tuple[float, float, float] = (0.0, 0.0, 1.0)  # a slow episode: from, to, factor
    pages: np.ndarray = field(default_factory=_none)  # calls an account
    page_lat: np.ndarray = field(default_factory=_none)
    ai_init: int = 0  # rows that are there at midnight
    ai_per_acct: np.ndarray = field(default_factory=_none)  # rows that an account's sync brings
    ai_dur: np.ndarray = field(default_factory=_none)  # seconds of a core a row
    ev_lat: np.ndarray = field(default_factory=_none)  # seconds of the model an eval
    rt_arr: np.ndarray = field(default_factory=_none)
    rt_lat: np.ndarray = field(default_factory=_none)
    probe_fail: float = 1e9  # the probe stands still from here on
    probe_lies: bool = False  # what it tells then has fresh stamps
    cpu_page: float = 0.040


def llm(rng: np.random.Generator, n: int) -> np.ndarray:
    """Seconds that a model takes: median 5.5 s, p99 35 s, one in 1,250 minutes long."""
    x = 5.5 * np.exp(0.796 * rng.standard_normal(n))  # median 5.5 s, p99 35 s
    tail = rng.random(n) < 0.0008
    x[tail] = rng.uniform(60, 660, tail.sum())
    return x


def make(kind: str, seed: int, n_acct: int = 5000, n_ai: int = 20000, n_ev: int = 2000) -> Drawn:
    """The night of a kind and a seed; nights of one seed share what their kinds leave alone."""
    rng = np.random.default_rng([seed, 7])
    nt = Drawn()
    med = rng.uniform(2.0, 4.0)
    nt.k_agg = int(rng.integers(45, 61))
    nt.pages = 1 + rng.poisson(4.0, n_acct)
    npg = int(nt.pages.sum())
    nt.page_lat = med * np.exp(0.5 * rng.standard_normal(npg + 8))
    n_ai = int(n_ai * rng.uniform(0.85, 1.15))
    dur = np.clip(0.8 * np.exp(0.5 * rng.standard_normal(2 * n_ai + 4000)), 0.3, 2.0)
    if rng.random() < 0.5:  # an ordinary slow episode
        s = 2 * H + rng.uniform(0, 900)
        nt.epi = (s, s + rng.uniform(300, 900), 3.0)
    nt.ev_lat = llm(rng, n_ev)
    fail = rng.uniform(1.5 * H, 4 * H)
    odd = rng.uniform(3.5 * H, 4.75 * H)
    if kind in ("slow3x", "slow3x+stale", "slow3x+backlog2x"):
        nt.lat_mult, nt.epi = 3.0, (0.0, 0.0, 1.0)
    if kind == "early":
        nt.lat_mult, nt.epi = 0.5, (0.0, 0.0, 1.0)
    if kind == "odd_hour":
        nt.t_sync = odd
        nt.epi = (0.0, 0.0, 1.0)
    big = 2.0 if "backlog2x" in kind else 1.0
    tot = int(n_ai * big)
    nt.ai_init = int(0.3 * tot)
    rest = tot - nt.ai_init
    nt.ai_per_acct = np.bincount(rng.integers(0, n_acct, rest), minlength=n_acct).astype(np.int64)
    nt.ai_dur = dur
    if "stale" in kind:
        nt.probe_fail, nt.probe_lies = fail, bool(seed % 2)
    b0 = rng.uniform(0.5 * H, 5 * H)
    shift = -1.5 * H if kind == "early_humans" else 0.0  # month end: the surge starts 05:00
    t, arr = 0.0, []
    lam_max = 15.0 / 60
    while t < 8 * H:  # thinning
        t += rng.exponential(1 / lam_max)
        x = (t - (6.5 * H + shift)) / H
        lam = (0.5 + 14.5 * min(1.0, max(0.0, x))) / 60
        if kind == "night_burst" and b0 < t < b0 + 1.5 * H:
            lam = 12.0 / 60  # a customer in another time zone
        if rng.random() < lam / lam_max:
            arr.append(t)
    nt.rt_arr = np.array([a for a in arr if a < 8 * H])
    nt.rt_lat = np.stack([llm(rng, len(nt.rt_arr)), llm(rng, len(nt.rt_arr))], 1)
    return nt
