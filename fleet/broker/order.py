"""In which order a worker process looks at its queues: those that a person waits for first.

Queues `first` are looked at alone while they may have something, so what a person waits for starts before anything else
of the lane that waits. Of sixteen looks one goes to the others first, so that a flood of it starves nothing.

Not guaranteed: an order among what was fetched before, or what other processes do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

PASSED_OVER_MOST = 15


class Order:
    """Of one process; not thread safe."""

    def __init__(self, first: Iterable[str]) -> None:
        self._first, self._passed_over = frozenset(first), 0

    def of(self, wanted: Sequence[str]) -> list[str]:
        """Of the queues that may have something, those to look at now."""
        first = [name for name in wanted if name in self._first]
        others = [name for name in wanted if name not in self._first]
        if not (first and others):
            return [*first, *others]
        self._passed_over = (self._passed_over + 1) % (PASSED_OVER_MOST + 1)
        return first if self._passed_over else [*others, *first]
