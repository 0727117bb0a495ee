"""Leaves a message that this release cannot run to another: while a deploy rolls, both serve the same queues.

A message whose actor is not declared here, or whose arguments the actor here does not take, goes back with a short
delay, under its own id and as it was but for the instant from which on it was left. Whichever worker takes it next and
can run it does; chance decides which that is, so it comes back soon, four times a second, and where there are many they
come back more rarely: a process leaves at most 200 a second. What nobody could run for half an hour becomes a dead
letter. Its body has not begun: that is known, not guessed. The half hour is real time by the clocks of the workers.

Not guaranteed: order, or that a roll which takes longer than half an hour finds each message a worker; the dead letter
can be requeued, and becomes one again at the first worker that cannot run it.
"""

from __future__ import annotations

import inspect
import threading
from datetime import datetime, timedelta
from typing import Any

from dramatiq import Actor, Message
from dramatiq.middleware import SkipMessage

from fleet import wire
from fleet.broker.ends import End
from fleet.clock import clock
from fleet.logs import get_logger
from fleet.workers.reading import FleetMessage

log = get_logger(__name__)

LEFT_FOR = timedelta(minutes=30)
_SOONEST = 0.25  # seconds until it comes back
_APART = 0.005  # seconds between two that a process leaves, where there are many
_MOST_SAID, _LONGEST_SAID = 1_024, 200  # anybody may write the name of an actor, and as long as a message


class LeftToAnotherRelease(SkipMessage):
    """Raised when a message does not fit this release's actor: for hooks one that is skipped; `end` puts it back."""

    def __init__(self, end: End) -> None:
        super().__init__("its arguments are not those of this release's actor")
        self.end = end


class OtherReleases:
    """What one worker process leaves to others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next_at = 0.0
        self._said: set[tuple[str, str]] = set()

    def left(self, message: FleetMessage, why: str) -> End | None:
        """The end that leaves a message to another release; None when it was left for long enough."""
        fetched = Message.decode(message.fetched.body)  # as it lay there, without what hooks put into its options
        now = clock.real_now()
        since = _since(fetched, now)
        if now - since >= LEFT_FOR:
            return None
        self._say(message, why)
        body = fetched.copy(options={wire.LEFT: wire.to_ms(since)}).encode()
        return message.fetched.end("retry", body, str(self._delay_ms()).encode())

    def _delay_ms(self) -> int:
        with self._lock:
            now = clock.monotonic()
            self._next_at = max(now + _SOONEST, self._next_at + _APART)
            return int((self._next_at - now) * 1000)

    def _say(self, message: FleetMessage, why: str) -> None:
        """Once an actor and process: a fan-out brings thousands. Again where more names come than are kept."""
        actor = message.actor_name[:_LONGEST_SAID]
        with self._lock:
            known = (actor, why) in self._said
            if len(self._said) >= _MOST_SAID and not known:
                self._said.clear()
            self._said.add((actor, why))
        if not known:
            log.warning("message_left_to_another_release", actor=actor, queue=message.queue_name, why=why)


def _since(message: Message[Any], now: datetime) -> datetime:
    """From when on a message was left: now, if it was not or says nonsense."""
    told = wire.instant(message.options.get(wire.LEFT))
    return now if told is None else min(told, now)


def takes(actor: Actor[..., Any], message: FleetMessage) -> bool:
    """Whether an actor's function can be called with a message's arguments; asked only after it could not."""
    return wire.LOST in message.options or misfit(actor, message) is None


def misfit(actor: Actor[..., Any], message: Message[Any] | FleetMessage) -> str | None:
    """Why an actor's function cannot be called with a message's arguments; None if it can."""
    try:
        inspect.signature(actor.fn).bind(*message.args, **message.kwargs)
    except TypeError as error:
        return str(error)
    except ValueError:  # a function of C that has no signature
        return None
    return None
