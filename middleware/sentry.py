"""Sends a final failure to Sentry: one event for a dead letter, none for retries, skips, expiries and shutdowns.

A job has a scope of its own, which ends with it however it ends; its tags, and the arguments that its actor lists as
safe, stand on whatever is reported from it, also by the engine's own lines (`fleet.sentry`). Dead letters that no job's
end makes (a hard budget, a poison message, bytes that are none) are reported by the process that makes them.

Why the SDK's own Dramatiq middleware is not used, and is taken out where it is found: `docs/decisions/0011`. The SDK is
imported only where a DSN is configured.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

from dramatiq import Broker, MessageProxy, Middleware
from dramatiq.middleware import Shutdown

from fleet import sentry, wire
from fleet.broker import FleetBroker
from fleet.sentry import report_issue
from middleware.outcome import outcome

__all__ = ["Sentry", "report_issue"]  # the latter for those who know it from here

_STOCK = "sentry_sdk.integrations.dramatiq"


class _Running(threading.local):
    """The scope of the job that this thread runs."""

    scope: AbstractContextManager[Any] | None = None


class Sentry(Middleware):
    """Reports dead letters, tagged with lane, queue, actor, attempt, slot and outcome."""

    def __init__(self) -> None:
        self._on = False
        self._running = _Running()

    def before_worker_boot(self, broker: Broker, worker: Any) -> None:
        from fleet.app import settings

        self._on = sentry.begin(settings(), process="worker")
        if self._on:
            broker.middleware[:] = [one for one in broker.middleware if type(one).__module__ != _STOCK]

    def after_worker_shutdown(self, broker: Broker, worker: Any) -> None:
        if self._on:
            sentry.flush()

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        if not self._on:
            return
        import sentry_sdk

        self._leave()  # a hook that was interrupted left its message's scope behind
        self._running.scope = sentry_sdk.isolation_scope()
        scope = self._running.scope.__enter__()
        scope.clear_breadcrumbs()
        scope.set_transaction_name(message.actor_name, source="task")
        for name, value in _tags(broker, message).items():
            scope.set_tag(name, value)
        scope.add_event_processor(_of_the_job(broker, message))

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        if not self._on:
            return
        # A shutdown says nothing of the job: it comes again, even where its attempts are used up.
        if exception is not None and message.failed and not isinstance(exception, Shutdown):
            _capture(message, exception, outcome(message, exception))
        self._leave()

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        if not self._on:
            return
        if message.failed:  # a middleware refused it for good
            _capture(message, message._exception or RuntimeError("refused by a middleware"), "failed")
        self._leave()

    def _leave(self) -> None:
        scope, self._running.scope = self._running.scope, None
        if scope is not None:
            scope.__exit__(None, None, None)


def _capture(message: MessageProxy, exception: BaseException, how: str) -> None:
    import sentry_sdk
    from sentry_sdk.utils import event_from_exception

    event, hint = event_from_exception(
        exception,
        client_options=sentry_sdk.get_client().options,
        mechanism={"type": "dramatiq", "handled": False},
    )
    with sentry_sdk.new_scope() as scope:
        scope.set_tag("outcome", how)
        scope.fingerprint = ["dead-letter", message.actor_name, type(exception).__name__]
        scope.capture_event(event, hint=hint)


def _tags(broker: Broker, message: MessageProxy) -> dict[str, str]:
    tags = {"queue": message.queue_name, "actor": message.actor_name, "message_id": message.message_id}
    tags["attempt"] = str(wire.count(message.options.get("retries")) + 1)
    lane = broker.lanes.get(message.queue_name) if isinstance(broker, FleetBroker) else None
    if lane is not None:
        tags["lane"] = lane.name
    entry, slot = message.options.get(wire.ENTRY), wire.instant(message.options.get(wire.SLOT))
    if entry and slot is not None:
        tags |= {"entry": str(entry), "slot": slot.isoformat()}
    elif "@" in (origin := str(message.options.get(wire.ORIGIN))):
        tags |= dict(zip(("entry", "slot"), origin.split("@", 1), strict=True))
    return tags


def _of_the_job(broker: Broker, message: MessageProxy) -> Any:
    """What is told of the job's arguments with an event, and what of them must not be in it; looked at late."""

    def add(event: Any, hint: Any) -> Any:
        from fleet.safe_args import arguments_of

        told = arguments_of(broker.actors.get(message.actor_name), message)
        hint["known"], hint["unsafe_names"] = told.unsafe_texts, told.unsafe_names
        if event.get("type") != "transaction":
            event.setdefault("contexts", {})["job"] = {**told.safe, "type": "job"}
        return event

    return add
