"""Check-ins at Sentry's cron monitors: one monitor an entry, made and kept by what its entry says.

A slot's message has one check-in, known to every process by the message's id: *in progress* each time its job begins,
*ok* when it is done, *error* when it is a dead letter, whatever made it one (failure, soft or hard budget, poison). A
run that was interrupted and will be repeated (a shutdown, the death of its process) is an *error* of its own at once,
while the slot's check-in stays in progress until the repetition ends it. A try that failed and will be repeated says
nothing: the next one says again that it is in progress, which for Sentry begins its time anew.

What the monitor expects: a check-in at the entry's cron in its zone (or interval), within `expires` of it, since a
later one would not start; and an end within the hard budget and the longest delay of a retry. A slot that nobody ran,
since it expired, was coalesced, paused or overlapped, has no check-in: Sentry says that it was missed, which it was.
Mute the monitor of an entry that you pause.

Two monitors are of no entry, and are the dead man's switch of the rest: `fleet-beat`, at which the leading beat checks
in each minute that it could fire in, and `fleet-probe`, for each time that somebody read and judged the queues.

Nothing is sent without a DSN, while a night is played, or by entries that Sentry cannot express (an interval that is no
whole number of minutes, a cron with seconds). Not guaranteed: an error for a run whose whole host vanished, or that
went with a process which the supervisor killed for another's sake; its repetition ends its check-in, or Sentry's time
limit does. What cannot be sent is said and costs no job anything.
"""

from __future__ import annotations

import math
import re
import sys
import uuid
from datetime import timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

from dramatiq import Message, MessageProxy

from fleet import sentry, wire
from fleet.actor import FleetActor
from fleet.broker import FleetBroker
from fleet.budgets import budget_of
from fleet.clock import clock
from fleet.declarations import ZERO, Budget, Entry, Retry
from fleet.logs import get_logger

if TYPE_CHECKING:
    from sentry_sdk._types import MonitorConfig, MonitorConfigSchedule

    from fleet.settings import Settings

log = get_logger(__name__)

Status = Literal["in_progress", "ok", "error"]
AnyMessage = Message[Any] | MessageProxy

_MINUTE = timedelta(minutes=1)
_UNITS: tuple[tuple[Literal["day", "hour", "minute"], timedelta], ...] = (
    ("day", timedelta(days=1)),
    ("hour", timedelta(hours=1)),
    ("minute", _MINUTE),
)
_MOST_MINUTES = 40_320  # Sentry's bound on margin and run time
_LONGEST_SLUG = 50
_EACH_MINUTE: MonitorConfig = {
    "schedule": {"type": "interval", "value": 1, "unit": "minute"},
    "checkin_margin": 3,
    "max_runtime": 1,
    "failure_issue_threshold": 1,
    "recovery_threshold": 1,
}
_IDS = uuid.UUID("6f0c2b0e-7d5f-4f0b-9a86-0f1f7d1f5c55")


class CheckIns:
    """Sends the check-ins of one broker's messages, once begun."""

    def __init__(self, broker: FleetBroker) -> None:
        self._broker = broker
        self.on = False

    def begin(self, configured: Settings) -> None:
        """Send from now on, if a DSN is configured and no night is played."""
        self.on = clock.rate == 1.0 and sentry.begin(configured)

    def end(self) -> None:
        """Send what is not sent yet."""
        if self.on:
            sentry.flush()

    def of_slot(self, message: AnyMessage) -> bool:
        """Whether a message stands for a slot, and something would be sent for it."""
        options = message.options
        return (
            self.on
            and isinstance(options, dict)
            and wire.LOST not in options
            and isinstance(options.get(wire.ENTRY), str)
            and isinstance(options.get(wire.SLOT), int)
        )

    def send(self, message: AnyMessage, status: Status, ran: timedelta | None = None) -> None:
        """Bring the check-in of a slot's message up to date."""
        self._send(message, status, uuid.uuid5(_IDS, f"{self._broker.namespace}/{message.message_id}"), ran)

    def interrupted(self, message: AnyMessage, ran: timedelta | None = None) -> None:
        """Say that a run was cut off that will be repeated."""
        self._send(message, "error", uuid.uuid4(), ran)

    def _send(self, message: AnyMessage, status: Status, id: uuid.UUID, ran: timedelta | None) -> None:
        if not self.of_slot(message):
            return
        try:
            from sentry_sdk.crons import capture_checkin

            entry = self._broker.entries.get(message.options[wire.ENTRY])
            config = None
            if entry is not None:  # else one of another revision: its monitor is as it was
                held = budget_of(self._broker, message)
                config = monitor_config(entry, held.budget if held else None, self._retry(message))
                if config is None:
                    return
            capture_checkin(
                monitor_slug=slug(message.options[wire.ENTRY]),
                check_in_id=id.hex,
                status=status,
                duration=None if ran is None else ran.total_seconds(),
                monitor_config=config,
            )
        except Exception as error:
            log.warning("check_in_not_sent", entry=message.options.get(wire.ENTRY), status=status, error=repr(error))

    def _retry(self, message: AnyMessage) -> Retry | None:
        actor = self._broker.actors.get(message.actor_name)
        lane = self._broker.lanes.get(message.queue_name)
        own = actor.retry if isinstance(actor, FleetActor) else None
        return own or (lane.retry if lane else None)


def monitor_config(entry: Entry, budget: Budget | None, retry: Retry | None) -> MonitorConfig | None:
    """What Sentry is to expect of an entry, in its own words; None if it has no words for it."""
    schedule = _schedule(entry)
    if schedule is None:
        return None
    config: MonitorConfig = {
        "schedule": schedule,
        "timezone": entry.tz if entry.cron is not None else "UTC",
        "checkin_margin": _minutes(entry.expires),
    }
    if budget is not None:
        pause = retry.longest if retry is not None and retry.attempts > 1 else ZERO
        config["max_runtime"] = _minutes(budget.hard + pause)
    return config


def _schedule(entry: Entry) -> MonitorConfigSchedule | None:
    if entry.cron is not None:
        return {"type": "crontab", "value": entry.cron} if len(entry.cron.split()) == 5 else None
    assert entry.every is not None
    for unit, length in _UNITS:
        if not entry.every % length:
            return {"type": "interval", "value": entry.every // length, "unit": unit}
    return None


def _minutes(span: timedelta) -> int:
    return min(_MOST_MINUTES, max(1, math.ceil(span / _MINUTE)))


def slug(entry: str) -> str:
    """An entry's name as Sentry takes it for a monitor; two names stay two."""
    plain = re.sub(r"[^a-z0-9_-]", "-", entry.lower())
    if plain == entry and len(plain) <= _LONGEST_SLUG:
        return plain
    return f"{plain[: _LONGEST_SLUG - 7]}-{blake2b(entry.encode(), digest_size=3).hexdigest()}"


def alive(what: Literal["beat", "probe"]) -> None:
    """Tell Sentry's monitor `fleet-beat` or `fleet-probe` that it still runs; it speaks after three minutes without.

    Nothing where Sentry was not begun, or while a night is played. What cannot be sent is said and costs nothing.
    """
    if "sentry_sdk" not in sys.modules or clock.rate != 1.0:
        return
    try:
        from sentry_sdk.crons import capture_checkin

        capture_checkin(monitor_slug=f"fleet-{what}", status="ok", monitor_config=_EACH_MINUTE)
    except Exception as error:
        log.warning("check_in_not_sent", entry=f"fleet-{what}", status="ok", error=repr(error))
