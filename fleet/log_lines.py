"""A log line on its way out: told to Sentry where it is one for it, scrubbed, and kept as a breadcrumb.

An exception that is logged becomes its traceback as text. Places and lines of code stay as they are; the exceptions'
own texts are scrubbed, with what their frames show to be personal.

On failure: the line is its event, its level and the name of what broke.
"""

from __future__ import annotations

import sys
from typing import Any

from fleet import sentry
from fleet.known import knowing
from fleet.personal import kind_of, known_from, known_under
from fleet.scrubbing import scrub_value, traceback_of

_AS_THEY_ARE = frozenset({"level", "timestamp", "logger", "nonce", "_record", "_from_structlog"})


class Scrubbing:
    """A processor of structlog's, for lines of its own and of the standard library's."""

    def __call__(self, _: Any, method: str, line: dict[str, Any]) -> dict[str, Any]:
        level = str(line.get("level", method))
        try:
            sentry.heard(line, level)
            scrubbed = _scrubbed(line)
        except Exception as broken:
            kept = {key: value for key, value in line.items() if key in _AS_THEY_ARE}
            event = line.get("event")
            short = event if isinstance(event, str) and event.isidentifier() else "line_not_scrubbed"
            return {"event": short, **kept, "not_scrubbed": type(broken).__name__}
        sentry.note(scrubbed, level)
        return scrubbed


def _scrubbed(line: dict[str, Any]) -> dict[str, Any]:
    error = _exception(line.pop("exc_info", None))
    texts = set(known_from(error)) if error is not None else set()
    for key, value in line.items():
        if isinstance(value, (dict, list)) or (isinstance(value, str) and kind_of(key) is not None):
            texts |= known_under(key, value)
    known = knowing(texts)
    scrubbed = {key: value if key in _AS_THEY_ARE else scrub_value(key, value, known) for key, value in line.items()}
    if error is not None:
        scrubbed["exception"] = "".join(traceback_of(error, known)).rstrip("\n")
    if "stack_info" in scrubbed:
        scrubbed["stack"] = scrubbed.pop("stack_info")
    return scrubbed


def _exception(logged: Any) -> BaseException | None:
    """The exception of what structlog or the standard library takes for one."""
    if isinstance(logged, BaseException):
        return logged
    if isinstance(logged, tuple):
        return logged[1]  # type: ignore[no-any-return]
    return sys.exc_info()[1] if logged else None
