"""A service without the application's code sends by name, and is refused what no worker takes."""

from __future__ import annotations

from collections.abc import Iterator

import dramatiq
import pytest

import fleet
from fleet.broker import FleetBroker
from fleet.errors import ArgumentsInvalid, NotDeclared
from fleet.workers.worker import FleetWorker
from tests.waiting import wait_until

RAN: list[tuple[int, str]] = []


@pytest.fixture
def elsewhere(redis_url: str, namespace: str) -> Iterator[fleet.catalogue.Connection]:
    broker = FleetBroker(url=redis_url, namespace=namespace, middleware=[])

    @dramatiq.actor(broker=broker, queue_name="runs")
    def submit_approved_run(run_id: int, note: str = "") -> None:
        RAN.append((run_id, note))

    worker = FleetWorker(broker, worker_threads=1)
    worker.start()
    yield fleet.connect(redis_url, namespace=namespace)
    worker.stop()


def test_a_message_sent_by_name_runs(elsewhere: fleet.catalogue.Connection) -> None:
    elsewhere.send("submit_approved_run", run_id=17)
    wait_until(lambda: (17, "") in RAN)


def test_an_unknown_name_asks_what_was_meant(elsewhere: fleet.catalogue.Connection) -> None:
    with pytest.raises(NotDeclared, match="Did you mean 'submit_approved_run'"):
        elsewhere.send("submit_aproved_run", run_id=17)


@pytest.mark.parametrize("arguments", [{}, {"run_id": 1, "colour": "red"}])
def test_arguments_that_no_worker_takes_are_refused(
    elsewhere: fleet.catalogue.Connection, arguments: dict[str, object]
) -> None:
    with pytest.raises(ArgumentsInvalid, match="submit_approved_run"):
        elsewhere.send("submit_approved_run", **arguments)
