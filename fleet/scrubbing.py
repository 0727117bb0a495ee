"""Takes out of values and of Sentry's events what must not leave the process; the patterns are `fleet.patterns`.

A value goes by its key (`fleet.personal`), a text by its form, and what the frames of an exception show to be personal
is taken out of every text beside it. A frame's variables are held to a list of what may stay (numbers, identifiers,
instants, ids, the names of types): of any other text nobody can say what it is.

Not guaranteed: a name in a free text that stands under no telling key in any frame. On failure: `scrub_event` sends an
event that has only its types, places and tags, and says that it could not be scrubbed.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Collection, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from dramatiq.errors import DecodeError

from fleet.known import REMOVED, Known, knowing
from fleet.patterns import keeps, scrub, scrub_sql
from fleet.personal import kind_of, known_from, known_under

__all__ = ["REMOVED", "scrub", "scrub_event", "scrub_sql", "scrub_value", "scrub_values", "shown", "traceback_of"]

_DEEPEST, _MOST_ITEMS = 6, 200
_PLAIN_TYPES = (bool, int, float, datetime, date, time, timedelta, UUID, PurePath)
_OWN_CONTEXTS = frozenset({"trace", "runtime", "os", "device", "app"})
_TYPE_OF_OBJECT = re.compile(
    r"<([\w.<>]+)(?: object)?(?: at 0x[0-9a-f]+)?>|<(?:class|function|module|bound method) '?[^']*"
)
_MAY_STAY = re.compile(
    r"""None|True|False|-?\d{1,9}|-?\d{1,9}\.(?!\d\d$)\d+|0x[0-9a-f]+|datetime\.\w+\([\w=,.\s+'/-]*\)
    |['"]?(?:
        [0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?::\d+|-\w+)?
        |[a-z_][a-z0-9_]{0,80}(?:[.:@/-][a-z0-9_]{1,80}){0,8}
        |(?:[\w./-]+\.(?:py|lua|sql|toml|ya?ml|json))(?::\d+)?
        |(?:[a-z0-9_-]+@)?\d{4}-\d\d-\d\d(?:[T ][\d:.]+(?:Z|[+-]\d\d:\d\d)?)?
        |\d{1,6}
    )?['"]?""",
    re.VERBOSE,
)


def scrub_value(key: str, value: Any, known: Known | None = None, depth: int = 0) -> Any:
    """A value of a log line, a tag, an extra or a breadcrumb: what stands under its key, as it may leave."""
    kind = kind_of(key) if key else None
    if kind is not None and value is not None and not isinstance(value, bool):
        return value if isinstance(value, str) and keeps(kind, value) else REMOVED
    if isinstance(value, str):
        return scrub(value, known)
    if value is None or (isinstance(value, _PLAIN_TYPES) and not isinstance(value, (PurePath, Enum))):
        return value
    if isinstance(value, Decimal):
        return REMOVED
    if depth >= _DEEPEST:
        return REMOVED
    if isinstance(value, Mapping):
        return scrub_values(value, known, depth + 1)
    if isinstance(value, (list, tuple, set, frozenset)):
        return [scrub_value("", one, known, depth + 1) for one in list(value)[:_MOST_ITEMS]]
    if isinstance(value, BaseException):
        return scrub(shown(value), known)
    return scrub(value.decode(errors="replace") if isinstance(value, bytes) else str(value), known)


def scrub_values(values: Mapping[Any, Any], known: Known | None = None, depth: int = 0) -> dict[str, Any]:
    """The same for each value of a mapping; a key that is itself personal loses its name."""
    return {
        scrub(str(key), known): scrub_value(str(key), value, known, depth)
        for key, value in list(values.items())[:_MOST_ITEMS]
    }


def shown(error: BaseException, known: Collection[str] = ()) -> str:
    """An exception as a log line shows it, without what is `known` or its frames show to be personal."""
    try:
        text = _as_text(error)
    except Exception as broken:
        return f"{type(error).__name__}, whose repr raises {type(broken).__name__}"
    return scrub(text, knowing({*known, *known_from(error)}))


def traceback_of(error: BaseException, known: Known | None) -> list[str]:
    """The parts of a traceback, in which only lines of code and their places are what they were."""
    parts = traceback.TracebackException.from_exception(error).format()
    return [part if part.lstrip(" |+-").startswith('File "') else scrub(part, known) for part in parts]


def _as_text(error: BaseException) -> str:
    """Its `repr`, without what could not be read: a message's body, a file; a decoder's errors repeat it whole."""
    if isinstance(error, DecodeError):
        within = _as_text(error.error)
        return within if isinstance(error.error, DecodeError) else f"{type(error).__name__}({within})"
    return f"{type(error).__name__}({str(error)!r})" if isinstance(error, UnicodeError) else repr(error)


def scrub_event(event: Any, hint: Any) -> Any:
    """Sentry's `before_send`: the event with everything taken out that must not leave.

    The hint may name more: `known` texts, and `unsafe_names` of variables.
    """
    if event.get("type") == "check_in":
        return event
    try:
        hint = hint or {}
        error = hint.get("exc_info", (None, None))[1]
        known = knowing({*hint.get("known", ()), *known_from(error), *_known_in(event)})
        _scrub_texts(event, known)
        _scrub_structures(event, known)
        _scrub_variables(event, known, hint.get("unsafe_names", frozenset()))
    except Exception as broken:  # fail closed: better an event that says little than one that says too much
        return _bare(event, broken)
    return event


def _known_in(event: Any) -> Iterator[str]:
    """What an event's own extras and breadcrumbs show to be personal."""
    for key, value in (event.get("extra") or {}).items():
        yield from known_under(str(key), value)
    for crumb in _values(event.get("breadcrumbs")):
        for key, value in (crumb.get("data") or {}).items():
            yield from known_under(str(key), value)


def _scrub_texts(event: Any, known: Known | None) -> None:
    for key in ("message", "transaction", "culprit"):
        if isinstance(event.get(key), str):
            event[key] = scrub(event[key], known)
    entry = event.get("logentry")
    if isinstance(entry, dict):
        entry.update({name: scrub(str(entry[name]), known) for name in ("message", "formatted") if entry.get(name)})
        entry.pop("params", None)
    for error in _values(event.get("exception")):
        if error.get("value") is not None:
            error["value"] = scrub(str(error["value"]), known)
    for crumb in _values(event.get("breadcrumbs")):
        if crumb.get("message") is not None:
            clean = scrub_sql if crumb.get("category") == "query" else str
            crumb["message"] = scrub(clean(str(crumb["message"])), known)
        if crumb.get("data") is not None:
            crumb["data"] = scrub_values(dict(crumb["data"]), known)
    for span in event.get("spans") or ():
        if isinstance(span.get("description"), str):
            clean = scrub_sql if str(span.get("op", "")).startswith("db") else str
            span["description"] = scrub(clean(span["description"]), known)


def _scrub_structures(event: Any, known: Known | None) -> None:
    event.pop("user", None)
    event.pop("request", None)
    if isinstance(event.get("extra"), Mapping):
        event["extra"] = scrub_values(event["extra"], known)
    if isinstance(event.get("tags"), Mapping):  # ids of ours, which an argument may happen to be like
        event["tags"] = scrub_values(event["tags"])
    if event.get("fingerprint"):
        event["fingerprint"] = [scrub(str(part), known) for part in event["fingerprint"]]
    contexts = event.get("contexts") or {}
    for name, context in contexts.items():
        if name not in _OWN_CONTEXTS and isinstance(context, Mapping):
            contexts[name] = scrub_values(context, known)
    sampling = (contexts.get("trace") or {}).get("dynamic_sampling_context")
    if isinstance(sampling, dict) and "transaction" in sampling:  # it stands in the envelope's header
        sampling["transaction"] = scrub(str(sampling["transaction"]), known)
    for one in (*(event.get("spans") or ()), contexts.get("trace") or {}):
        if isinstance(one.get("data"), Mapping):
            one["data"] = _span_values(one["data"], known)
        if isinstance(one.get("tags"), Mapping):
            one["tags"] = scrub_values(one["tags"], known)


def _scrub_variables(event: Any, known: Known | None, unsafe_names: Collection[str]) -> None:
    for frame in _frames(event):
        if isinstance(frame.get("vars"), Mapping):
            frame["vars"] = {
                _name(str(key), known): REMOVED if key in unsafe_names else _variable(str(key), value, known)
                for key, value in frame["vars"].items()
            }


def _span_values(values: Mapping[str, Any], known: Known | None) -> dict[str, Any]:
    """A span's attributes, whose names are Sentry's; a statement stands among them too."""
    return {
        key: scrub(scrub_sql(str(value)), known)
        if key in ("db.query.text", "db.statement")
        else (value if key.startswith(("messaging.", "thread.", "sentry.")) else scrub_value(key, value, known))
        for key, value in values.items()
    }


def _variable(key: str, value: Any, known: Known | None) -> Any:
    """A variable of a frame, which the SDK has turned into texts, lists and dicts by now."""
    if kind_of(key) is not None and value not in ("None", "True", "False"):
        return REMOVED
    if isinstance(value, Mapping):
        return {_name(str(name), known): _variable(str(name), one, known) for name, one in value.items()}
    if isinstance(value, list):
        return [_variable("", one, known) for one in value]
    text = str(value)
    if _MAY_STAY.fullmatch(text):
        return scrub(text, known)
    of = _TYPE_OF_OBJECT.match(text) or re.match(r"<?[A-Za-z_][\w.]*(?=[( ])", text)
    return f"{scrub(of[0], known)} …" if of else REMOVED


def _name(key: str, known: Known | None) -> str:
    return scrub(key, known) if _MAY_STAY.fullmatch(key) or key.isidentifier() else REMOVED


def _frames(event: Any) -> Iterator[Any]:
    holders = [event, *_values(event.get("exception")), *_values(event.get("threads"))]
    for holder in holders:
        yield from ((holder.get("stacktrace") or {}).get("frames") or ())


def _values(found: Any) -> list[Any]:
    if isinstance(found, Mapping):
        found = found.get("values")
    return [one for one in found or () if isinstance(one, dict)]


def _bare(event: Any, broken: Exception) -> Any:
    kept = {
        key: event[key]
        for key in ("event_id", "timestamp", "level", "platform", "environment", "release", "sdk")
        if key in event
    }
    types = [{"type": error.get("type"), "value": REMOVED} for error in _values(event.get("exception"))]
    tags = {key: str(value) for key, value in dict(event.get("tags") or {}).items() if _MAY_STAY.fullmatch(str(value))}
    said = f"an event could not be scrubbed: {type(broken).__name__}"
    return {**kept, "tags": tags, "exception": {"values": types}, "logentry": {"message": said}}
