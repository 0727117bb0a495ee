"""Where tracing is on, a trace goes on from who sends to who runs; where it is off, nothing is added to a message."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import dramatiq
import pytest
import sentry_sdk

from fleet import Retry, queue
from fleet import app as application
from middleware.tracing import TRACE
from tests.middleware.ingest import Ingest
from tests.waiting import wait_until

TWICE = Retry(attempts=2, first=timedelta(milliseconds=1), longest=timedelta(milliseconds=1))


@pytest.fixture
def traced(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> Ingest:
    """The house with every trace sampled."""
    settings = application.settings().model_copy(update={"sentry_traces_sample_rate": 1.0})
    monkeypatch.setattr(application, "settings", lambda: settings)
    return ingest


def spans(transaction: Any, op: str) -> list[dict[str, Any]]:
    return [span for span in transaction["spans"] if span["op"] == op]


def transactions(house: Any, ingest: Ingest, *names: str) -> list[Any]:
    """The transactions of these names, in this order, once they arrived."""

    def arrived() -> list[Any]:
        sentry_sdk.flush(1)
        return [one for name in names for one in ingest.transactions() if one["transaction"] == name]

    wait_until(lambda: len(arrived()) >= len(names), 30)
    house.stop()
    return arrived()


def send(house: Any, actor: Any, **options: Any) -> Any:
    """As a web process does that traces its requests."""
    house.work()  # begins the SDK
    with sentry_sdk.start_transaction(op="http.server", name="a request"):
        return actor.send_with_options(**options)


def test_a_job_goes_on_with_its_senders_trace_and_both_sides_have_a_span(house: Any, traced: Ingest) -> None:
    actor = queue("work").actor(name="job")(lambda: None)
    message = send(house, actor)
    sender, job = transactions(house, traced, "a request", "job")
    (publish,), (process,) = spans(sender, "queue.publish"), spans(job, "queue.process")
    assert sender["contexts"]["trace"]["trace_id"] == job["contexts"]["trace"]["trace_id"]
    assert job["contexts"]["trace"]["parent_span_id"] == publish["span_id"]
    for span in (publish, process):
        assert span["data"]["messaging.message.id"] == message.message_id
        assert span["data"]["messaging.destination.name"] == "work"
    # The broker's own id of a fetched message is that of the sent one, so both sizes are of the same bytes.
    assert process["data"]["messaging.message.body.size"] == publish["data"]["messaging.message.body.size"] > 100
    assert process["data"]["messaging.message.retry.count"] == 0
    assert 0 <= process["data"]["messaging.message.receive.latency"] < 10_000
    assert job["contexts"]["trace"]["status"] == "ok"


def test_a_retry_is_in_the_same_trace_and_counted(house: Any, traced: Ingest) -> None:
    def fail() -> None:
        raise ValueError("not yet")

    send(house, queue("work").actor(name="job", retry=TWICE)(fail))
    house.until_idle()  # both attempts
    sender, first, second = transactions(house, traced, "a request", "job")
    assert {one["contexts"]["trace"]["trace_id"] for one in (sender, first, second)} == {
        sender["contexts"]["trace"]["trace_id"]
    }
    counts = [spans(one, "queue.process")[0]["data"]["messaging.message.retry.count"] for one in (first, second)]
    assert counts == [0, 1]
    assert [one["contexts"]["trace"]["status"] for one in (first, second)] == ["aborted", "internal_error"]
    assert len(spans(sender, "queue.publish")) == 1
    (event,) = traced.events()
    assert event["contexts"]["trace"]["trace_id"] == sender["contexts"]["trace"]["trace_id"]


def test_a_time_that_is_none_is_no_beginning_of_a_latency(house: Any, traced: Ingest) -> None:
    house.work()
    queue("work").actor(name="job")(lambda: None).send_with_options(requeue_timestamp=10**400, retries="many")
    (job,) = transactions(house, traced, "job")
    (process,) = spans(job, "queue.process")
    assert 0 <= process["data"]["messaging.message.receive.latency"] < 10_000
    assert process["data"]["messaging.message.retry.count"] == 0


def test_the_time_that_a_message_was_meant_to_wait_is_no_latency(house: Any, traced: Ingest) -> None:
    began = time.monotonic()
    send(house, queue("work").actor(name="job")(lambda: None), delay=1_500)
    _, job = transactions(house, traced, "a request", "job")
    waited = (time.monotonic() - began) * 1000
    (process,) = spans(job, "queue.process")
    assert process["data"]["messaging.message.receive.latency"] <= waited - 1_500


def test_a_job_that_nobody_traced_begins_a_trace_and_what_it_sends_goes_on_with_it(house: Any, traced: Ingest) -> None:
    child = queue("work").actor(name="child")(lambda: None)
    queue("work").actor(name="parent")(lambda: child.send() and None).send()
    house.work()
    parent, job = transactions(house, traced, "parent", "child")
    assert job["contexts"]["trace"]["parent_span_id"] == spans(parent, "queue.publish")[0]["span_id"]


def test_a_message_that_is_skipped_is_no_transaction(house: Any, traced: Ingest) -> None:
    send(house, queue("work").actor(name="late")(lambda: None), expires_at=10**12)
    house.until_idle()
    queue("work").actor(name="job")(lambda: None).send()
    transactions(house, traced, "job")
    assert "late" not in [one["transaction"] for one in traced.transactions()]


def test_a_trace_that_the_sdks_own_middleware_sent_goes_on_here(house: Any, traced: Ingest) -> None:
    actor = queue("work").actor(name="job")(lambda: None)
    house.work()
    with sentry_sdk.start_transaction(op="http.server", name="a request") as request:
        message = actor.message()
        message.options[TRACE] = {  # what that middleware writes
            "baggage": sentry_sdk.get_baggage(),
            "sentry-trace": sentry_sdk.get_traceparent(),
        }
        _without_ours(house.broker, lambda: house.broker.enqueue(message))
        span = request.span_id
    _, job = transactions(house, traced, "a request", "job")
    assert job["contexts"]["trace"]["parent_span_id"] == span


def test_without_a_sample_rate_nothing_is_added_to_a_message_and_nothing_is_traced(house: Any, ingest: Ingest) -> None:
    options: list[dict[str, Any]] = []

    class Reads(dramatiq.Middleware):
        def before_process_message(self, broker: Any, message: Any) -> None:
            options.append(message.options)

    house.broker.add_middleware(Reads())
    send(house, queue("work").actor(name="job")(lambda: None))
    house.until_idle()
    house.stop()
    assert TRACE not in options[0]
    assert ingest.transactions() == []


@pytest.mark.parametrize("carried", [None, 17, "x", {}, {"sentry-trace": 17}, {"sentry-trace": "nonsense", "due": "x"}])
def test_whatever_stands_where_a_trace_should_the_job_runs(house: Any, traced: Ingest, carried: Any) -> None:
    queue("work").actor(name="job")(lambda: None).send_with_options(**{TRACE: carried})
    house.work()
    (job,) = transactions(house, traced, "job")
    assert job["contexts"]["trace"]["status"] == "ok"


def _without_ours(broker: Any, send: Callable[[], Any]) -> None:
    kept = list(broker.middleware)
    broker.middleware[:] = [one for one in kept if type(one).__name__ != "Tracing"]
    send()
    broker.middleware[:] = kept
