"""A chat completion as this client needs it, read out of whatever the server sent: the SDK does not validate.

Not guaranteed: anything about fields that are not read here. On failure: `ReplyUnreadable`, with what was found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from books.model.turns import Message, Usage
from fleet.errors import FleetError

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion


class ReplyUnreadable(FleetError):
    """Raised when a body is no chat completion; says what was found instead."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A tool call as the model wrote it: `arguments` is a text that should be JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """The first choice's message. `calls` of another type than `function` have no name."""

    content: str | None
    calls: tuple[Asked, ...]
    usage: Usage

    def message(self) -> Message:
        """As the next request repeats it."""
        message: Message = {"role": "assistant", "content": self.content}
        if self.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.calls
            ]
        return message


def reply_of(completion: ChatCompletion) -> Reply:
    """What a completion says. Raises `ReplyUnreadable`."""
    choices = getattr(completion, "choices", None)
    if not isinstance(choices, list) or not choices:  # a body that is no JSON comes as text, a missing list as None
        raise ReplyUnreadable(f"a {type(completion).__name__} without choices")
    message = getattr(choices[0], "message", None)
    content, calls = getattr(message, "content", None), getattr(message, "tool_calls", None)
    if message is None or not isinstance(content, str | None) or not isinstance(calls, list | None):
        raise ReplyUnreadable(f"a choice without a message ({type(message).__name__})")
    return Reply(content, tuple(map(_asked, calls or ())), _usage(completion))


def _asked(call: Any) -> Asked:
    function = getattr(call, "function", None) if getattr(call, "type", None) == "function" else None
    found = [getattr(call, "id", None), getattr(function, "name", None), getattr(function, "arguments", None)]
    return Asked(*(one if isinstance(one, str) else "" for one in found))


def _usage(completion: ChatCompletion) -> Usage:
    used = getattr(completion, "usage", None)
    counts = [getattr(used, name, None) for name in ("prompt_tokens", "completion_tokens")]
    return Usage(*(count if isinstance(count, int) else 0 for count in counts))
