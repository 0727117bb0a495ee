"""The doctor names a lane that cannot open what others seal."""

from __future__ import annotations

import pytest

from fleet.doctor_keys import keys_of_messages
from fleet.payloads import fingerprints
from fleet.workers.presence import Report

K1, K2 = "first key of a test", "second key of a test"


def lane(name: str, *keys: str, seals: bool = True) -> Report:
    return Report("supervisor", name, host="h", payload_keys=fingerprints(keys, seals=seals))


def beat(*keys: str) -> Report:
    return Report("beat", "beat", host="h", payload_keys=fingerprints(keys, seals=True))


@pytest.mark.parametrize(
    "reports",
    [
        [],
        [lane("a"), lane("b"), beat()],
        [lane("a", K1, seals=False), lane("b")],
        [lane("a", K1), lane("b", K1, K2), beat(K1)],
        [lane("a", K1, K2), lane("b", K2, K1), beat(K2, K1)],
        [lane("a", K1), Report("supervisor", "of another release", host="h")],
    ],
)
def test_lanes_that_open_what_everybody_seals_are_in_order(reports: list[Report]) -> None:
    assert list(keys_of_messages(reports)) == []


@pytest.mark.parametrize(
    ("reports", "by", "lacking"),
    [
        ([lane("a", K2, K1), lane("b", K1)], "lane a on h", "of lane b on h"),
        ([beat(K2), lane("a", K1, K2), lane("b"), lane("c", K1)], "the beat on h", "of lane b on h, lane c on h"),
    ],
)
def test_a_lane_without_a_key_that_somebody_seals_with_is_named_and_the_key_is_not(
    reports: list[Report], by: str, lacking: str
) -> None:
    found = [one for one in keys_of_messages(reports) if one.found.startswith(by)]
    assert len(found) == 1 and lacking in found[0].found and found[0].kind == "problem"
    assert "key of a test" not in str(found[0])
