"""The thread that runs messages, and settles how each ends.

However a message's body and hooks end, its thread goes on and its end is one of `fleet.broker.ends`. A hook that breaks
never ends a message that did not: it comes again a second later, and after three broken runs it is a dead letter.

Not guaranteed: that a raise from outside (`PyThreadState_SetAsyncExc`) leaks no lock, when it strikes between the
taking of one and its `try`.
"""

from __future__ import annotations

import json
import math
import threading
from queue import Empty
from typing import Any

from dramatiq import Message, MessageProxy, WorkerThread
from dramatiq.errors import ActorNotFound
from dramatiq.middleware import Shutdown, SkipMessage

from fleet import wire
from fleet.broker import FleetBroker
from fleet.broker.dead import LONGEST_EXCEPTION
from fleet.broker.ends import End, Fetched, Settling, current
from fleet.broker.pump import Pump
from fleet.budgets import budget_of
from fleet.clock import clock
from fleet.failures import Failure, failure_of
from fleet.logs import get_logger
from fleet.workers.board import SlotWriter
from fleet.workers.lost import after_deadline, after_refusal, run_body
from fleet.workers.other_release import LeftToAnotherRelease, OtherReleases, takes
from fleet.workers.reading import FleetMessage, read, unreadable
from fleet.workers.ready import Ready

log = get_logger(__name__)

HOOK_FAILURES = "hook_failures"
_MOST_HOOK_FAILURES = 3
_HOOK_RETRY_MS = b"1000"
_TRACEBACK_LINES = 40
_TRACEBACK_CHARACTERS = 8_000


class _Retiring(SkipMessage):
    """Raised when a body would begin in a child that retires: for hooks a message that is skipped, and it goes back."""


class FleetWorkerThread(WorkerThread):
    """Runs one message after the other; whatever one does, the thread goes on."""

    pump: Pump
    others: OtherReleases
    slot: SlotWriter | None = None
    broker: FleetBroker
    work_queue: Ready  # type: ignore[assignment]

    def run(self) -> None:
        self.running = True
        self.broker.emit_after("worker_thread_boot", self)
        while self.running:
            if self.paused:
                self.paused_event.set()
                threading.Event().wait(0.05)
                continue
            try:
                fetched = self.work_queue.get(timeout=self.timeout).fetched
            except Empty:
                continue
            try:
                try:
                    self._process(fetched)
                finally:
                    if self.slot is not None:
                        self.slot.clear()
            except Exception as error:  # whatever its bytes do to us, the lane goes on
                self.pump.end(unreadable(fetched, error))
            except BaseException as error:  # a raise from outside that struck between two of its lines
                log.error("thread_interrupted", queue=fetched.queue, error=repr(error))
                self.pump.end(fetched.end("back"))  # nothing if it has its end
        self.broker.emit_before("worker_thread_shutdown", self)

    def _process(self, fetched: Fetched) -> None:
        message = read(fetched)
        if message.actor_name in self.broker.actors:
            message.options.pop(wire.LEFT, None)  # this release runs it: a retry of it begins anew
            self.process_message(message)
        elif (end := self.others.left(message, "it is not declared here")) is not None:
            self.pump.end(end)
        else:
            self._refuse(message)

    def _refuse(self, message: FleetMessage) -> None:
        """A dead letter of a message whose actor no release has declared for long enough."""
        error = ActorNotFound(message.actor_name)  # type: ignore[no-untyped-call]
        message.fail()
        message.stuff_exception(error)
        self.broker.emit_before("nack", message)
        self.pump.end(unreadable(message.fetched, error))
        self.broker.emit_after("nack", message)

    def process_message(self, message: MessageProxy) -> None:
        """Run a message's hooks and body, and have it ended.

        An exception that escapes from a hook, whatever its kind, ends it as what was settled before: dead, retry, or a
        broken run.
        """
        assert isinstance(message, FleetMessage)
        end = message.fetched.end("back")
        current.settling = settling = Settling(message.message_id, message.queue_name)
        try:
            self._note(message)
            end = self._run(message, settling)
        except BaseException as error:  # a time limit that strikes in a hook is one; no thread may end of it
            log.error("hook_interrupted", actor=message.actor_name, message_id=message.message_id, error=repr(error))
            end = self._without_hooks(message, settling, error)
        finally:
            current.settling = None
            self.pump.end(end)
            message.clear_exception()

    def _note(self, message: FleetMessage) -> None:
        """Write down on the board what this thread is about to run."""
        if self.slot is None:
            return
        held, now = budget_of(self.broker, message), clock.monotonic()
        self.slot.begin(
            delivery=message.fetched.delivery,
            id=message.fetched.id,
            queue=message.fetched.queue,
            actor=message.actor_name,
            message_id=str(message.message_id),
            started=now,
            soft=now + held.budget.soft.total_seconds() if held else math.inf,
            hard=now + held.budget.hard.total_seconds() if held else math.inf,
        )

    def _run(self, message: FleetMessage, settling: Settling) -> End:
        failure: BaseException | None = None
        try:
            self.broker.emit_before("process_message", message)
            if settling.broken_hook is not None:
                raise settling.broken_hook
            result = None
            if not message.failed:
                result = self._body(message, settling)
            self.broker.emit_after("process_message", message, result=result)
        except SkipMessage as error:
            if message.failed:
                message.stuff_exception(error)
            self.broker.emit_after("skip_message", message)
            if isinstance(error, _Retiring):
                return message.fetched.end("back")
            if isinstance(error, LeftToAnotherRelease):
                return error.end
            if settling.retry is None:  # it does not come again
                after_refusal(self.broker.get_actor(message.actor_name), message, error, self.broker)
            return self._settled(message, settling, skipped=error)
        except BaseException as error:
            failure = error
            after_deadline(self.broker.get_actor(message.actor_name), message, error)
            message.stuff_exception(error)
            self.broker.emit_after("process_message", message, exception=error)
        try:
            if isinstance(failure, Shutdown):  # the process ends; it says nothing of the job
                return message.fetched.end("back")
            return self._settled(message, settling, failure=failure)
        finally:
            del failure  # it holds this frame by its traceback, and would live on until a garbage collection

    def _body(self, message: FleetMessage, settling: Settling) -> object:
        if self.slot is not None and self.slot.body():
            raise _Retiring
        actor = self.broker.get_actor(message.actor_name)
        settling.in_body = True
        try:
            return run_body(actor, message, self.broker)
        except TypeError as error:
            if takes(actor, message):
                raise
            end = self.others.left(message, "it takes other arguments here")
            if end is not None:
                raise LeftToAnotherRelease(end) from error
            message.options[wire.LEFT] = 0  # its retries are failures too, and are not left again
            raise
        finally:
            settling.in_body = False
            if self.slot is not None:
                self.slot.ending()

    def _settled(
        self,
        message: FleetMessage,
        settling: Settling,
        failure: BaseException | None = None,
        skipped: SkipMessage | None = None,
    ) -> End:
        """The end that body and hooks add up to; ack's and nack's hooks are called for it."""
        if settling.broken_hook is not None and not message.failed and settling.retry is None:
            end = self._after_broken_hook(message, settling.broken_hook)
            if end.kind == "dead":
                message.fail()
                self.broker.emit_before("nack", message)
                self.broker.emit_after("nack", message)
            return end
        if failure is not None and settling.retry is None:
            message.fail()  # no middleware said what becomes of it: stock would acknowledge work that did not end
        if message.failed:
            self.broker.emit_before("nack", message)
            end = self._dead(message, failure or skipped)
            self.broker.emit_after("nack", message)
            return end
        self.broker.emit_before("ack", message)
        if settling.retry is not None:
            body, delay = settling.retry
            end = message.fetched.end("retry", body, str(delay).encode())
        elif settling.goes_on is not None and failure is None and skipped is None:
            end = message.fetched.end("retry", settling.goes_on, b"0")
        else:
            end = message.fetched.end("drop" if skipped else "done")
        self.broker.emit_after("ack", message)
        return end

    def _without_hooks(self, message: FleetMessage, settling: Settling, error: BaseException) -> End:
        """The end of a message one of whose hooks threw its thread out."""
        try:
            if message.failed:
                return self._dead(message, error)
            if settling.retry is not None:
                body, delay = settling.retry
                return message.fetched.end("retry", body, str(delay).encode())
            return self._after_broken_hook(message, error)
        except Exception as broken:  # it cannot be written again; sent back as it is it would come for ever
            return unreadable(message.fetched, broken)

    def _after_broken_hook(self, message: FleetMessage, error: BaseException) -> End:
        """Again, as it was fetched: what hooks put into its options meanwhile may be what cannot be encoded."""
        fetched = Message.decode(message.fetched.body)
        failures = wire.count(fetched.options.get(HOOK_FAILURES)) + 1
        if failures >= _MOST_HOOK_FAILURES:
            return self._dead(message, error, reason="hook")
        return message.fetched.end("retry", fetched.copy(options={HOOK_FAILURES: failures}).encode(), _HOOK_RETRY_MS)

    def _dead(self, message: FleetMessage, error: BaseException | None, reason: str = "") -> End:
        actor = self.broker.actors.get(message.actor_name)
        return message.fetched.end("dead", second=details(message, error, self.pump.worker_id, reason, actor))


def details(
    message: MessageProxy, error: BaseException | None, worker: str, reason: str = "", actor: Any = None
) -> bytes:
    """Why a message died, as JSON: reason, exception, traceback (bounded), attempts, worker, first and last time.

    Exception and traceback are what the log shows of them (`fleet.failures`).
    """
    failure = failure_of(error, actor, message) if error is not None else Failure("None", [])
    now = clock.real_now().isoformat()
    return json.dumps(
        {
            "reason": reason or _reason(error),
            "actor": message.actor_name,
            "exception": failure.text[:LONGEST_EXCEPTION],
            "traceback": _last_of("".join(failure.traceback[-_TRACEBACK_LINES:])),
            "attempts": wire.count(message.options.get("retries")) + (0 if reason == "" else 1),
            "worker": worker,
            "sent": _instant(message.message_timestamp),
            "died": now,
        }
    ).encode()


def _instant(milliseconds: object) -> str | None:
    """ISO 8601 of a time out of a message, which anybody can write."""
    try:
        return wire.from_ms(milliseconds).isoformat()  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None


def _last_of(trace: str) -> str:
    """The last whole lines: of half a line nobody can tell what stood in it."""
    kept = trace[-_TRACEBACK_CHARACTERS:]
    return kept if kept == trace else kept.partition("\n")[2] or kept


def _reason(error: BaseException | None) -> str:
    from fleet.errors import DeadlineExceeded

    if isinstance(error, DeadlineExceeded):
        return "deadline"
    return "failed" if error is not None else "rejected"
