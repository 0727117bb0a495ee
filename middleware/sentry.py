"""Sends a final failure to Sentry: one event for a dead letter, none for retries, skips and expiries.

`report_issue` is for what no exception stands for, such as a row that a person has to look at.

The SDK is imported only where a DSN is configured. Arguments never leave the process.
"""

from __future__ import annotations

import sys
from typing import Any

from dramatiq import Broker, MessageProxy, Middleware

from fleet import sentry


class Sentry(Middleware):
    """Reports dead letters, tagged with queue, actor and attempt."""

    def __init__(self) -> None:
        self._on = False

    def before_worker_boot(self, broker: Broker, worker: Any) -> None:
        from fleet.app import settings

        self._on = sentry.begin(settings())

    def after_worker_shutdown(self, broker: Broker, worker: Any) -> None:
        if self._on:
            sentry.flush()

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        if not self._on or exception is None or not message.failed:
            return
        import sentry_sdk

        with sentry_sdk.new_scope() as scope:
            scope.set_tag("queue", message.queue_name)
            scope.set_tag("actor", message.actor_name)
            scope.set_tag("attempt", message.options.get("retries", 0))
            scope.set_tag("message_id", message.message_id)
            scope.fingerprint = ["dead-letter", message.actor_name, type(exception).__name__]
            scope.capture_exception(exception)


def report_issue(title: str, *, fingerprint: list[str], **tags: str) -> None:
    """An event of the issue that `fingerprint` names; nothing where there is no DSN. Tags are ids, never contents."""
    if "sentry_sdk" not in sys.modules:  # the worker's boot imports it where there is a DSN
        return
    import sentry_sdk

    with sentry_sdk.new_scope() as scope:
        for name, value in tags.items():
            scope.set_tag(name, value)
        scope.fingerprint = fingerprint
        scope.capture_message(title, level="warning")
