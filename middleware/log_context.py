"""Binds message, actor, queue, attempt and slot to every log line of a job, and says how the job ended.

Arguments are never logged: they may be personal. The text of a job's exception is scrubbed with what its frames show to
be personal (`fleet.scrubbing`). Not guaranteed: that it quotes nothing else, nor anything for a stock worker, which
logs arguments with each failure.
"""

from __future__ import annotations

from typing import Any

from dramatiq import Broker, MessageProxy, Middleware

from fleet import unspent, wire
from fleet.errors import DeadlineExceeded, RetryLater
from fleet.logs import get_logger

log = get_logger(__name__)

_BOUND = ("message_id", "actor", "queue", "attempt", "origin")


class LogContext(Middleware):
    """Log context around a job."""

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        from structlog.contextvars import bind_contextvars

        bind_contextvars(
            message_id=message.message_id,
            actor=message.actor_name,
            queue=message.queue_name,
            attempt=wire.count(message.options.get("retries")) + 1,
            origin=message.options.get(wire.ORIGIN) or message.options.get(wire.ENTRY),
        )

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        if exception is not None:
            self._say(broker, message, exception)
        _unbind()

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        _unbind()

    def _say(self, broker: Broker, message: MessageProxy, exception: BaseException) -> None:
        from fleet.safe_args import arguments_of
        from fleet.scrubbing import shown

        error = shown(exception, arguments_of(broker.actors.get(message.actor_name), message).unsafe_texts)
        if isinstance(exception, DeadlineExceeded):
            log.error("job_deadline", reason=str(exception), dead_letter=True)
        elif message.failed:
            log.error("job_failed", error=error, dead_letter=True)
        elif (waits := message.options.get(unspent.COMES_BACK_IN)) is not None:
            times = wire.count(message.options.get(unspent.OUTAGES))
            log.warning("job_awaits_postgresql", error=error, times=times, comes_back_in=waits)
        elif isinstance(exception, RetryLater):
            log.info("job_retries_later", error=str(exception), after=str(exception.after))
        else:
            log.warning("job_retries", error=error)


def _unbind() -> None:
    from structlog.contextvars import unbind_contextvars

    unbind_contextvars(*_BOUND)
