"""The chunks of an elastic entry: how its work goes on while the allowance lets it, and how its chains begin.

    chunk(work)   inside the entry's actor: does one chunk, and has the chain go on
    seed(…)       begins the chains that are allowed and not there

(first sketch of the signatures; the bodies follow)
"""

from __future__ import annotations

from collections.abc import Callable

from fleet.broker import FleetBroker
from fleet.declarations import Entry


def chunk(work: Callable[[int], bool]) -> None:
    """Do one chunk of an elastic entry's work, if its allowance says so; called by the body of the entry's actor.

    `work(size)` does up to `size` rows and returns whether more is left.
    """
    raise NotImplementedError


def seed(broker: FleetBroker, entry: Entry, places: int) -> int:
    """Begin those of the chains 0…places-1 that are not there; returns how many began."""
    raise NotImplementedError
