"""What a soak calls growth, and which keys it counts together."""

from __future__ import annotations

import pytest

from tests.soak.growth import Slope, key_kind, slope


def test_a_slope_is_the_growth_an_hour_and_wants_three_nights_of_twenty_minutes() -> None:
    assert slope([(0.1, 100.0), (0.2, 101.0), (0.5, 104.0)]) == (pytest.approx(10.0), pytest.approx(0.0, abs=1e-6))
    assert slope([(0.1, 100.0), (0.5, 200.0)]) == (None, 0.0)
    assert slope([(0.1, 100.0), (0.2, 101.0), (0.3, 104.0)]) == (None, 0.0)
    grows, error = slope([(0.0, 0.0), (1.0, 2.0), (2.0, 1.0), (3.0, 3.0)])
    assert (grows, error) == (pytest.approx(0.8), pytest.approx((1.8 / 2 / 5) ** 0.5))


@pytest.mark.parametrize(
    ("slope", "verdict"),
    [
        (Slope("threads", "beat", 8, 30, 22.0), "red"),
        (Slope("threads", "beat", 8, 30, 22.0, error=9.0), "not decided"),
        (Slope("threads", "beat", 8, 30, 22.0, error=8.9), "red"),
        (Slope("threads", "beat", 8, 9, 4.0, error=9.0), "ok"),
        (Slope("threads", "beat", 8, 30, None), None),
        (Slope("rows", "transactions", 0, 90_000, 90_000.0), None),
    ],
)
def test_what_is_beyond_its_bound_by_less_than_two_errors_is_not_decided_and_no_ok(
    slope: Slope, verdict: str | None
) -> None:
    assert slope.verdict == verdict


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("ns:uploads.msgs", "*.msgs"),
        ("ns:__acks__.0f3b5c1e-4ad2-4f0e-9d1c-0a1b2c3d4e5f.uploads", "__acks__.*.*"),
        ("ns:fleet:beat:ledger:nightly_audit", "fleet:beat:ledger:*"),
        ("ns:fleet:workers", "fleet:workers"),
    ],
)
def test_keys_of_one_kind_are_counted_together_whoevers_they_are(key: str, kind: str) -> None:
    assert key_kind(key, "ns", {"uploads", "nightly_audit"}) == kind
