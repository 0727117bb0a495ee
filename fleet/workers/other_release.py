"""Leaves a message that this release cannot run to another: while a deploy rolls, both serve the same queues.

A message whose actor is not declared here, or whose arguments the actor here does not take, goes back with a growing
delay (1, 2, 4 … 30 s), under its own id and as it was but for a count. A worker that can run it does, at its next turn.
What nobody could run for half an hour becomes a dead letter. Its body has not begun: that is known, not guessed.

Not guaranteed: order, or that a roll which takes longer than half an hour finds each message a worker; the dead letter
can be requeued. A message that was left long before and is requeued becomes a dead letter again at the first worker
that cannot run it.
"""

from __future__ import annotations

import inspect
from typing import Any

from dramatiq import Actor, Message
from dramatiq.middleware import SkipMessage

from fleet import wire
from fleet.broker.ends import End
from fleet.logs import get_logger
from fleet.workers.reading import FleetMessage

log = get_logger(__name__)

_LONGEST_MS = 30_000
LEFT_MOST = 64  # half an hour, as the delays add up

_said: set[tuple[str, str]] = set()


class LeftToAnotherRelease(SkipMessage):
    """Raised when a message does not fit this release's actor: for hooks one that is skipped; `end` puts it back."""

    def __init__(self, end: End) -> None:
        super().__init__("its arguments are not those of this release's actor")
        self.end = end


def left(message: FleetMessage, why: str) -> End | None:
    """The end that leaves a message to another release; None when it was left often enough."""
    fetched = Message.decode(message.fetched.body)  # as it lay there, without what hooks put into its options
    times = fetched.options.get(wire.LEFT, 0)
    times = times if isinstance(times, int) and times >= 0 else 0
    if times >= LEFT_MOST or not isinstance(message.actor_name, str):
        return None
    if (message.actor_name, why) not in _said:  # once an actor and process: a fan-out brings thousands
        _said.add((message.actor_name, why))
        log.warning("message_left_to_another_release", actor=message.actor_name, queue=message.queue_name, why=why)
    body = fetched.copy(options={wire.LEFT: times + 1}).encode()
    return message.fetched.end("retry", body, str(min(_LONGEST_MS, 1000 * 2 ** min(times, 10))).encode())


def takes(actor: Actor[..., Any], message: FleetMessage) -> bool:
    """Whether an actor's function can be called with a message's arguments; asked only after it could not."""
    if wire.LOST in message.options:
        return True
    try:
        inspect.signature(actor.fn).bind(*message.args, **message.kwargs)
    except TypeError:
        return False
    except ValueError:  # a function of C that has no signature
        return True
    return True
