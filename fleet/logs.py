"""Structured logs: structlog on top of the standard library, JSON in production, readable lines on a terminal.

`get_logger` is cheap and may be called while a module is imported: structlog itself is imported at the first
event, so that a web process which only sends pays nothing for it.

Every line of a configured process, the standard library's and an uncaught exception's included, goes through
`fleet.scrubbing` before it is written: values by their keys, texts by their form, and what the frames of a logged
exception show to be personal. Tracebacks keep their places and their lines of code, and show no variables.

Not guaranteed: anything for what is printed, or written by a process that was not configured. On failure: a line that
cannot be scrubbed is written with its event, its level and nothing else.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any, Literal


class Logger:
    """A named logger whose events are `event_name, key=value`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._logger: Any = None

    def _log(self, level: str, event: str, values: dict[str, Any]) -> None:
        from fleet import deadline  # which logs itself

        if self._logger is None:
            import structlog

            self._logger = structlog.get_logger(self._name)
        with deadline.shielded():
            getattr(self._logger, level)(event, **values)

    def debug(self, event: str, **values: Any) -> None:
        self._log("debug", event, values)

    def info(self, event: str, **values: Any) -> None:
        self._log("info", event, values)

    def warning(self, event: str, **values: Any) -> None:
        self._log("warning", event, values)

    def error(self, event: str, **values: Any) -> None:
        self._log("error", event, values)

    def critical(self, event: str, **values: Any) -> None:
        self._log("critical", event, values)

    def exception(self, event: str, **values: Any) -> None:
        """An ERROR with the traceback of the exception being handled."""
        self._log("exception", event, values)


def get_logger(name: str) -> Logger:
    """A logger for a module; opens and configures nothing."""
    return Logger(name)


log = get_logger(__name__)


def brief(error: BaseException, longest: int = 300) -> str:
    """An exception as a line has room for it: scrubbed, and cut then, since half of an IBAN does not look like one."""
    from fleet.scrubbing import shown

    return shown(error)[:longest]


def _handler() -> logging.Handler:
    """To standard error. The standard library takes a handler's lock by `acquire(); try`: a deadline that struck a job
    between the two would silence every other thread of its process for ever."""
    from fleet import deadline

    class Shielded(logging.StreamHandler[Any]):
        def handle(self, record: logging.LogRecord) -> bool:
            with deadline.shielded():
                return super().handle(record)

    return Shielded(sys.stderr)


def configure(log_format: Literal["console", "json"], level: str) -> None:
    """Send this process's logs, the standard library's included, to standard error in one format, scrubbed."""
    import structlog

    from fleet.log_lines import Scrubbing

    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        Scrubbing(),
    ]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    renderer: Any = (
        structlog.processors.JSONRenderer(default=str)
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            sort_keys=False,
            exception_formatter=structlog.dev.plain_traceback,  # the default one would show variables
        )
    )
    final: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer]
    handler = _handler()
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=final))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for chatty in ("apscheduler", "httpx", "httpcore", "openai", "dramatiq", "urllib3", "alembic.runtime.plugins"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLevelName(level)))
    sys.excepthook = _process_broke
    threading.excepthook = _thread_broke


def _process_broke(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
    """Python's own hook would print the exception's text as it is."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
    else:
        log.critical("process_broke", exc_info=(kind, error, traceback))


def _thread_broke(broke: threading.ExceptHookArgs) -> None:
    if broke.exc_value is not None and not isinstance(broke.exc_value, SystemExit):
        name = broke.thread.name if broke.thread is not None else "?"
        exc_info = (broke.exc_type, broke.exc_value, broke.exc_traceback)
        log.critical("thread_broke", thread=name, exc_info=exc_info)
