"""Gauges of what stands in Redis, read when a process is scraped: queues as the last reading says, alerts, allowances.

Each replica of the beat exports them, and all say the same, whoever leads: a rule takes the `max`. Of a reading that is
stale only its time is said, so that no rule takes yesterday's depth for today's.

Not guaranteed: anything while Redis does not answer. A source that fails is left out of that scrape and said once
(`gauges_not_read`); the others, and what the process itself counts, are exported all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from fleet import metrics
from fleet.clock import clock
from fleet.logs import brief, get_logger

if TYPE_CHECKING:
    from prometheus_client import Metric

log = get_logger(__name__)

Read = tuple[str, tuple[str, ...], float]
"""A metric's name, the values of its labels in the order they are declared in, and its value."""
Source = Callable[[], Iterable[Read]]


class Queue(Protocol):
    """What is exported of a queue's reading; None where nothing is known."""

    @property
    def ready(self) -> int: ...
    @property
    def delayed(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def dead(self) -> int: ...
    @property
    def oldest_age(self) -> timedelta | None: ...
    @property
    def lag_p95(self) -> timedelta | None: ...
    @property
    def consumers(self) -> int | None: ...


class Readings(Protocol):
    """What is exported of a reading; `age` in night time."""

    @property
    def queues(self) -> Mapping[str, Queue]: ...
    @property
    def stale(self) -> bool: ...
    def age(self) -> timedelta: ...


def export(**sources: Source) -> None:
    """Have this process's `/metrics` say what the sources read at each scrape; their names are for the log."""
    from prometheus_client import REGISTRY

    REGISTRY.register(ReadGauges(sources))


class ReadGauges:
    """A collector over sources, none of which a scrape may fail by."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = sources
        self._failing: set[str] = set()

    def describe(self) -> Iterable[Metric]:
        return ()  # or the registry would read everything to learn the names

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        families: dict[str, GaugeMetricFamily] = {}
        for name, labels, value in self._read():
            metric = metrics.declared(name)
            if name not in families:
                families[name] = GaugeMetricFamily(name, metric.means, labels=metric.labels)
            families[name].add_metric(labels, value)
        yield from families.values()

    def _read(self) -> Iterator[Read]:
        for which, source in self._sources.items():
            try:
                read = list(source())
            except Exception as error:  # whatever it is, the scrape shows the rest
                if which not in self._failing:
                    log.warning("gauges_not_read", of=which, error=brief(error))
                self._failing.add(which)
            else:
                self._failing.discard(which)
                yield from read


def of_queues(readings: Readings | None) -> Iterator[Read]:
    """The gauges of the last reading; nothing where there was none."""
    if readings is None:
        return
    yield "fleet_probe_timestamp_seconds", (), (clock.real_now() - clock.to_real(readings.age())).timestamp()
    if readings.stale:
        return
    for name, queue in readings.queues.items():
        for state in ("ready", "delayed", "in_flight", "dead"):
            yield "fleet_queue_depth", (name, state), getattr(queue, state)
        yield "fleet_queue_oldest_seconds", (name,), queue.oldest_age.total_seconds() if queue.oldest_age else 0.0
        if queue.lag_p95 is not None:
            yield "fleet_queue_lag_p95_seconds", (name,), queue.lag_p95.total_seconds()
        if queue.consumers is not None:
            yield "fleet_queue_consumers", (name,), queue.consumers


def of_alerts(kinds: Iterable[str]) -> Iterator[Read]:
    """How many alerts of each kind are open; a kind an alert."""
    for kind, count in Counter(kinds).items():
        yield "fleet_alerts_open", (kind,), count


def of_allowances(places: Mapping[str, int]) -> Iterator[Read]:
    """What elastic entries are allowed now, by entry."""
    for entry, count in places.items():
        yield "fleet_allowance", (entry,), count


def of_quota(quota: str, size: int, *, people: int, batch: int) -> Iterator[Read]:
    """One quota's places: in all, and taken by either."""
    yield "fleet_quota_size", (quota,), size
    yield "fleet_quota_places", (quota, "people"), people
    yield "fleet_quota_places", (quota, "batch"), batch
