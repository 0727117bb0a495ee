"""Structured logs: structlog on top of the standard library, JSON in production, readable lines on a terminal.

`get_logger` is cheap and may be called while a module is imported: structlog itself is imported at the first
event, so that a web process which only sends pays nothing for it.
"""

from __future__ import annotations

import logging
import sys
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
    """Send this process's logs, the standard library's included, to standard error in one format."""
    import structlog

    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    renderer: Any = (
        structlog.processors.JSONRenderer(default=str)
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), sort_keys=False)
    )
    final: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if log_format == "json":
        final.append(structlog.processors.format_exc_info)
    handler = _handler()
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[*final, renderer]))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for chatty in ("apscheduler", "httpx", "httpcore", "openai", "dramatiq", "urllib3", "alembic.runtime.plugins"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLevelName(level)))
