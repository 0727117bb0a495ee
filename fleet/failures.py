"""What a message keeps of its job's exception: the text and the traceback as the log shows them, without its arguments.

Types, frames and lines of code stay. What the frames show to be personal is taken out of the texts, and so are the
message's arguments, but those that its actor lists as safe (`fleet.safe_args`): with `FLEET_PAYLOAD_KEYS` they are
sealed, and a letter that repeated one beside them would show it.

Not guaranteed: more than `fleet.scrubbing` and `fleet.safe_args` do. On failure: the type of the exception, and that of
what broke.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dramatiq import Message, MessageProxy


@dataclass(frozen=True)
class Failure:
    """An exception's `text`, as its `repr` is one, and the parts of its traceback in their order."""

    text: str
    traceback: list[str]


def failure_of(error: BaseException, actor: Any, message: Message[Any] | MessageProxy) -> Failure:
    """What may be kept of the exception of a message's job; all arguments are unsafe where the actor is None."""
    try:
        from fleet.known import knowing
        from fleet.personal import known_from
        from fleet.safe_args import arguments_of
        from fleet.scrubbing import shown, traceback_of

        known = arguments_of(actor, message).unsafe_texts | known_from(error)
        return Failure(shown(error, known), traceback_of(error, knowing(known)))
    except Exception as broken:  # a message must end, and what is not scrubbed must not be kept
        said = f"{type(error).__name__} [not scrubbed: {type(broken).__name__}]"
        return Failure(said, [f"{said}\n"])
