"""Which entry of the schedule a message's options name: they are anybody's to write, and entries become series.

A label or a counted figure of its own is had by what this process's schedule declares, and by nothing else. Not
guaranteed: one for an entry that another release declares, while both run.
"""

from __future__ import annotations

from typing import TypeGuard

from dramatiq import Broker

from fleet.broker import FleetBroker

LONGEST_NAME = 200  # of an entry, where it becomes part of a key or of a row's
OTHER = "other"


def is_known(broker: Broker, entry: object) -> TypeGuard[str]:
    """Whether an entry that a message names is one of the schedule."""
    return isinstance(broker, FleetBroker) and isinstance(entry, str) and entry in broker.entries


def label(broker: Broker, entry: str) -> str:
    """An entry as metrics name it."""
    return entry if is_known(broker, entry) else OTHER
