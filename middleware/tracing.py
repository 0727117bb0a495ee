"""Where tracing is on: a `queue.publish` span for what is sent, and a trace that goes on in the worker.

A message carries its sender's trace in the option that the SDK's own Dramatiq integration uses, so that either side may
be one that has that instead. A job is a transaction with one `queue.process` span: message, queue, size, retries, and
its latency, the real milliseconds from when it was due until it began. A retry goes on with the trace of its message; a
message that is refused is none. What is sent outside a transaction begins a trace in the worker.

Not guaranteed: spans beyond the SDK's bound of a thousand a job. On failure: what the SDK raises, the broker logs and
goes on.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from dramatiq import Broker, Message, MessageProxy, Middleware
from dramatiq.middleware import Shutdown

from fleet import sentry, wire
from fleet.broker.ends import Fetched, current
from fleet.clock import clock
from middleware.outcome import outcome

TRACE = "_sentry_headers"  # the SDK's name
_DUE = "due"  # beside the SDK's own two in there: real milliseconds since the epoch
_SPAN = "_publish_span"
_STATUS = {"done": "ok", "failed": "internal_error", "deadline": "deadline_exceeded", "retried": "aborted"}


class _Running(threading.local):
    transaction: Any = None
    span: Any = None


class Tracing(Middleware):
    """Spans of sending and of running."""

    def __init__(self) -> None:
        self._running = _Running()

    def before_enqueue(self, broker: Broker, message: Message[Any], delay: int | None) -> None:
        if not sentry.tracing():
            return
        due = int(time.time() * 1000 + (delay or 0) / clock.rate)
        settling = current.settling
        if settling is not None and settling.retried_by(message):
            if isinstance(carried := message.options.get(TRACE), dict):
                message.options[TRACE] = {**carried, _DUE: due}
            return
        import sentry_sdk

        parent = sentry_sdk.get_current_span()
        if parent is None:
            return
        span = parent.start_child(op="queue.publish", name=message.queue_name, origin="auto.queue.dramatiq")
        baggage = span.to_baggage()
        message.options[TRACE] = {
            "sentry-trace": span.to_traceparent(),
            "baggage": baggage.serialize() if baggage is not None else "",
            _DUE: due,
        }
        object.__setattr__(message, _SPAN, span)  # a Message is frozen, and the same one comes after

    def after_enqueue(self, broker: Broker, message: Message[Any], delay: int | None) -> None:
        span = getattr(message, _SPAN, None)
        if span is None:
            return
        _describe(span, message, len(message.encode()) if span.sampled else 0)
        span.finish()

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        self._running.transaction = self._running.span = None
        if not sentry.tracing():
            return
        import sentry_sdk

        carried = message.options.get(TRACE)
        carried = carried if isinstance(carried, dict) else {}
        continued = sentry_sdk.continue_trace(
            {name: carried[name] for name in ("sentry-trace", "baggage") if isinstance(carried.get(name), str)},
            op="queue.task.dramatiq",
            name=message.actor_name,
            source="task",
            origin="auto.queue.dramatiq",
        )
        transaction = sentry_sdk.start_transaction(continued)
        span = transaction.start_child(op="queue.process", name=message.actor_name, origin="auto.queue.dramatiq")
        fetched = getattr(message, "fetched", None)
        _describe(span, message, len(fetched.body) if isinstance(fetched, Fetched) else 0)
        span.set_data("messaging.message.receive.latency", max(0.0, time.time() * 1000 - _due(message, carried)))
        span.set_data("messaging.message.retry.count", wire.count(message.options.get("retries")))
        sentry_sdk.get_current_scope().span = span  # the job's own scope, which `Sentry` above ends
        self._running.transaction, self._running.span = transaction, span

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        if self._running.transaction is None:
            return
        how = "cancelled" if isinstance(exception, Shutdown) else _STATUS.get(outcome(message, exception), "unknown")
        for span in (self._running.span, self._running.transaction):
            span.set_status(how)
            span.finish()
        self._running.transaction = self._running.span = None

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        self._running.transaction = self._running.span = None  # never finished, so never sent


def _describe(span: Any, message: Message[Any] | MessageProxy, size: int) -> None:
    span.set_data("messaging.system", "redis")
    span.set_data("messaging.message.id", message.message_id)
    span.set_data("messaging.destination.name", message.queue_name)
    span.set_data("messaging.message.body.size", size)


def _due(message: MessageProxy, carried: dict[str, Any]) -> float:
    """When a message was due, in real milliseconds: as its sender says, else when it was sent (a delay counts then)."""
    for found in (carried.get(_DUE), message.options.get("requeue_timestamp"), message.message_timestamp):
        if isinstance(found, int) and wire.instant(found) is not None:
            return float(found)
    return time.time() * 1000
