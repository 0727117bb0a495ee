"""Sentry's SDK, begun once in a process where a DSN is configured, and imported nowhere else.

Arguments, local variables and the SDK's own integrations are off: what is sent is what the callers put together.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleet.settings import Settings

_FLUSH_SECONDS = 2.0


def begin(configured: Settings) -> bool:
    """Begin to report, if a DSN is configured; whether one is."""
    if not configured.sentry_dsn:
        return False
    import sentry_sdk

    if not sentry_sdk.is_initialized():
        sentry_sdk.init(
            dsn=configured.sentry_dsn,
            environment=configured.sentry_environment,
            include_local_variables=False,
            default_integrations=False,
        )
    return True


def flush() -> None:
    """Send what is not sent yet, for two seconds at most: a worker process leaves by os._exit, past the SDK's hooks."""
    import sentry_sdk

    sentry_sdk.flush(timeout=_FLUSH_SECONDS)


def report_issue(title: str, *, fingerprint: list[str], **tags: str) -> None:
    """An event of the issue that `fingerprint` names; nothing where there is no DSN. Tags are ids, never contents."""
    if "sentry_sdk" not in sys.modules:  # who begins imports it where there is a DSN
        return
    import sentry_sdk

    with sentry_sdk.new_scope() as scope:
        for name, value in tags.items():
            scope.set_tag(name, value)
        scope.fingerprint = fingerprint
        scope.capture_message(title, level="warning")
