"""What stands in Redis is exported as it is when it is scraped; a source that fails hides nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
import redis
from prometheus_client import CollectorRegistry

from fleet.clock import clock
from fleet.read_gauges import Read, ReadGauges, of_alerts, of_queues


@dataclass(frozen=True)
class OneQueue:
    ready: int = 3
    delayed: int = 0
    in_flight: int = 1
    dead: int = 2
    oldest_age: timedelta | None = timedelta(minutes=4)
    lag_p95: timedelta | None = None
    consumers: int | None = None


@dataclass(frozen=True)
class Taken:
    queues: dict[str, OneQueue] = field(default_factory=lambda: {"sync": OneQueue(), "mail": OneQueue(oldest_age=None)})
    stale: bool = False

    def age(self) -> timedelta:
        return timedelta(seconds=200) if self.stale else timedelta(seconds=20)


def scraped(**sources: Iterable[Read]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(ReadGauges({name: lambda read=read: read for name, read in sources.items()}))  # type: ignore[misc]
    return registry


def test_the_last_reading_is_exported_and_what_it_does_not_know_is_left_out() -> None:
    found = scraped(queues=list(of_queues(Taken())))
    assert found.get_sample_value("fleet_queue_depth", {"queue": "sync", "state": "ready"}) == 3
    assert found.get_sample_value("fleet_queue_depth", {"queue": "mail", "state": "dead"}) == 2
    assert found.get_sample_value("fleet_queue_oldest_seconds", {"queue": "sync"}) == 240
    assert found.get_sample_value("fleet_queue_oldest_seconds", {"queue": "mail"}) == 0, "nothing waits"
    assert found.get_sample_value("fleet_queue_lag_p95_seconds", {"queue": "sync"}) is None
    assert found.get_sample_value("fleet_queue_consumers", {"queue": "sync"}) is None
    at = found.get_sample_value("fleet_probe_timestamp_seconds")
    assert at == pytest.approx(clock.real_now().timestamp() - 20, abs=5)


def test_what_a_reading_knows_of_lag_and_consumers_is_exported() -> None:
    known = OneQueue(lag_p95=timedelta(seconds=2.5), consumers=0)
    found = scraped(queues=list(of_queues(Taken({"sync": known}))))
    assert found.get_sample_value("fleet_queue_lag_p95_seconds", {"queue": "sync"}) == 2.5
    assert found.get_sample_value("fleet_queue_consumers", {"queue": "sync"}) == 0


def test_of_a_stale_reading_only_its_time_is_said() -> None:
    found = scraped(queues=list(of_queues(Taken(stale=True))))
    assert [metric.name for metric in found.collect()] == ["fleet_probe_timestamp_seconds"]
    assert list(of_queues(None)) == []


def test_a_source_that_fails_is_said_once_and_hides_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    def refused() -> Iterator[Read]:
        yield "fleet_allowance", ("audit",), 4
        raise redis.ConnectionError("no Redis here")

    answers = {"allowances": refused, "alerts": lambda: of_alerts(["age", "age", "dead"])}
    registry = CollectorRegistry(auto_describe=True)
    registry.register(ReadGauges(answers))
    for _ in range(2):
        assert registry.get_sample_value("fleet_alerts_open", {"kind": "age"}) == 2
        assert registry.get_sample_value("fleet_allowance", {"entry": "audit"}) is None
    assert capsys.readouterr().out.count("gauges_not_read") == 1
