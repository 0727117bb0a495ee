"""One turn of an agent: the model calls tools, or it gives its final answer.

`ModelStep.message` and `ToolCall.result` are what the next turn's messages go on with, in the API's own shape.
Not guaranteed: that a call's arguments keep to the tool's schema; only that they are a JSON object and the tool exists.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that were paid for, those of a repaired answer included."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model wants called."""

    id: str
    name: str
    arguments: dict[str, Any]

    def result(self, content: str) -> Message:
        """The message that hands the tool's result to the next turn."""
        return {"role": "tool", "tool_call_id": self.id, "content": content}


@dataclass(frozen=True, slots=True)
class ModelStep:
    """Either calls tools (`answer` is None) or ends the run with an answer (`tool_calls` is empty)."""

    tool_calls: tuple[ToolCall, ...]
    answer: str | None
    usage: Usage

    def message(self) -> Message:
        """This turn as the next one's messages repeat it; each tool call must be followed by its result."""
        message: Message = {"role": "assistant", "content": self.answer}
        if self.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
                }
                for call in self.tool_calls
            ]
        return message
