"""Nightshift's engine and its vocabulary.

Not guaranteed: that this package alone makes a fleet. An application brings `actors/` and `config/`; see README.
"""

from fleet import deadline
from fleet.actor import queue
from fleet.catalogue import connect
from fleet.declarations import All, Budget, Elastic, Entry, Lane, Retry

__all__ = ["All", "Budget", "Elastic", "Entry", "Lane", "Retry", "connect", "deadline", "queue"]
