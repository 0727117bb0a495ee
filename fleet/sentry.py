"""Sentry's SDK, begun once in a process where a DSN is configured, and imported nowhere else.

Worker processes report final failures (`middleware.sentry`); every process reports what its log says at CRITICAL, and
what the engine says at ERROR: one issue an event name and lane, queue, actor or entry, from each process once in a
quarter of an hour. `report_issue` is for what no exception stands for. A Redis that is away is one issue a fleet,
whatever found it, and one event of it a process. All that leaves goes through `fleet.scrubbing`, also where the
application began the SDK itself; what the SDK would do by itself is off.

Not guaranteed: that an event arrives. The SDK sends from a thread, keeps a hundred events, and drops what is beyond.
On failure: nothing here raises into a job; an event that cannot be made is lost.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from fleet.clock import clock

if TYPE_CHECKING:
    from fleet.settings import Settings

Level = Literal["info", "warning", "error", "fatal"]

OUTAGE = ["redis-outage"]
"""The fingerprint of whatever a Redis that does not answer brought about."""

_FLUSH_SECONDS = 2.0
_AGAIN_AFTER = timedelta(minutes=15)  # real time
_LONGEST_TEXT = 100_000  # cutting is for `fleet.scrubbing`: half of an IBAN is no IBAN
_REPORTED_OTHERWISE = frozenset({"job_failed", "job_deadline", "alert_opened"})
_OF_AN_OUTAGE = frozenset({"redis_lost", "lane_waits_for_redis", "beat_waits_for_redis"})
_ENGINE = ("fleet", "beat", "middleware")
_TAGS = ("lane", "queue", "actor", "entry", "slot", "message_id", "kind", "reason", "pid", "worker")
_NAMING = ("lane", "queue", "actor", "entry", "kind")
_OUTCOMES = {"job_lost": "lost", "message_condemned": "condemned", "message_unreadable": "unreadable"}
_OWN_KEYS = frozenset({"event", "level", "logger", "timestamp", "exc_info", "stack_info"})


def begin(configured: Settings, **tags: str) -> bool:
    """Begin to report, if a DSN is configured; whether one is. The tags are those of every event of this process."""
    if not configured.sentry_dsn:
        return False
    import sentry_sdk

    if not sentry_sdk.is_initialized():
        sentry_sdk.init(
            dsn=configured.sentry_dsn,
            environment=configured.sentry_environment,
            traces_sample_rate=configured.sentry_traces_sample_rate or None,
            default_integrations=False,
            max_value_length=_LONGEST_TEXT,
        )
    _guard(sentry_sdk.get_client().options)
    for name, value in tags.items():
        sentry_sdk.get_global_scope().set_tag(name, value)
    _state.listening = True
    return True


def tracing() -> bool:
    """Whether this process traces: the SDK was begun, by whomever, with a sample rate."""
    if "sentry_sdk" not in sys.modules:
        return False
    import sentry_sdk
    from sentry_sdk.tracing_utils import has_tracing_enabled

    return has_tracing_enabled(sentry_sdk.get_client().options)


def flush() -> None:
    """Send what is not sent yet, for two seconds at most: a worker process leaves by os._exit, past the SDK's hooks."""
    if "sentry_sdk" in sys.modules:
        import sentry_sdk

        sentry_sdk.flush(timeout=_FLUSH_SECONDS)


def report_issue(title: str, *, fingerprint: list[str], level: Level = "warning", **tags: str) -> None:
    """An event of the issue that `fingerprint` names; nothing where there is no DSN. Tags are ids, never contents."""
    if "sentry_sdk" not in sys.modules:  # `begin` imports it where there is a DSN
        return
    import sentry_sdk

    with sentry_sdk.new_scope() as scope:
        for name, value in tags.items():
            scope.set_tag(name, value)
        scope.fingerprint = fingerprint
        scope.capture_message(title, level=level)


def heard(line: dict[str, Any], level: str) -> None:
    """Report a log line, as it was written, if it is one for Sentry."""
    if not _state.listening or level not in ("error", "critical", "exception"):
        return
    event, by = str(line.get("event")), str(line.get("logger", ""))
    if event in _REPORTED_OTHERWISE or (level != "critical" and by.split(".", 1)[0] not in _ENGINE):
        return
    fingerprint = [event, *(str(line[key]) for key in _NAMING if line.get(key))]
    if event in _OF_AN_OUTAGE or "Redis did not answer" in str(line.get("reason", "")):
        fingerprint = OUTAGE
    if fingerprint is OUTAGE or line.get("dead_letter") or _state.allows(tuple(fingerprint)):
        with suppress(Exception):
            _report(line, event, fingerprint, "fatal" if level == "critical" else "error")


def note(line: dict[str, Any], level: str) -> None:
    """Keep a scrubbed log line as a breadcrumb of what may be reported later in the same job or thread."""
    if _state.listening:
        import sentry_sdk

        values = {key: value for key, value in line.items() if key not in _OWN_KEYS and not key.startswith("_")}
        with suppress(Exception):
            sentry_sdk.add_breadcrumb(
                category=str(line.get("logger", "")), message=str(line.get("event")), level=level, data=values
            )


def is_outage(error: BaseException | None) -> bool:
    """Whether an exception, or what it came from, is a Redis that does not answer."""
    redis = sys.modules.get("redis")
    for _ in range(8):
        if error is None or redis is None:
            return False
        if isinstance(error, (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError)):
            return True
        error = error.__cause__ or error.__context__
    return False


class _State:
    """Whether this process reports, and what it has reported lately."""

    def __init__(self) -> None:
        self.listening = False
        self._reported: OrderedDict[tuple[str, ...], float] = OrderedDict()
        self._lock = (
            threading.RLock()
        )  # garbage that is collected under it may be logged as an error: it comes back here

    def allows(self, fingerprint: tuple[str, ...]) -> bool:
        """Whether an issue's last event is long enough ago; it counts as sent now if so."""
        now = clock.monotonic()
        with self._lock:
            last = self._reported.get(fingerprint)
            if last is not None and now - last < _AGAIN_AFTER.total_seconds():
                return False
            self._reported[fingerprint] = now
            self._reported.move_to_end(fingerprint)
            if len(self._reported) > 500:
                self._reported.popitem(last=False)
            return True

    def forget(self) -> None:
        """For tests: this process has reported nothing, and is not listening."""
        with self._lock:
            self._reported.clear()
            self.listening = False


_state = _State()


def _report(line: dict[str, Any], event: str, fingerprint: list[str], level: Level) -> None:
    import sentry_sdk

    with sentry_sdk.new_scope() as scope:
        for key in _TAGS:
            if line.get(key) is not None:
                scope.set_tag(key, str(line[key]))
        if event in _OUTCOMES:
            scope.set_tag("outcome", _OUTCOMES[event])
        if lane := _lane_of(line.get("queue")):
            scope.set_tag("lane", lane)
        scope.set_tag("event", event)
        for key, value in line.items():
            if key not in _OWN_KEYS and key not in _TAGS and not key.startswith("_"):
                scope.set_extra(key, value)
        scope.fingerprint = list(fingerprint)
        scope.set_level(level)
        error = line.get("exc_info")
        error = sys.exc_info()[1] if error is True else error[1] if isinstance(error, tuple) else error
        if isinstance(error, BaseException):
            scope.capture_exception(error)
        else:
            scope.capture_message(event, level=level)


def _lane_of(queue: Any) -> str | None:
    app = sys.modules.get("fleet.app")
    lane = app.process_broker().lanes.get(queue) if app is not None and isinstance(queue, str) else None
    return lane.name if lane is not None else None


def _guard(options: dict[str, Any]) -> None:
    """Put the scrubbing behind whatever a client already does before it sends, once."""
    if getattr(options.get("before_send"), "scrubs", False):
        return
    for hook in ("before_send", "before_send_transaction"):
        options[hook] = _Guard(options.get(hook))


class _Guard:
    """An event as it leaves: of an outage at most one in a while, and scrubbed."""

    scrubs = True

    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(self, event: Any, hint: Any) -> Any:
        from fleet.scrubbing import scrub_event

        if self._before is not None:
            event = self._before(event, hint)
        if event is None or event.get("type") == "check_in":
            return event
        if is_outage((hint or {}).get("exc_info", (None, None))[1]):
            event["fingerprint"] = list(OUTAGE)
        if event.get("fingerprint") == OUTAGE and not _state.allows(tuple(OUTAGE)):
            return None
        return scrub_event(event, hint)
