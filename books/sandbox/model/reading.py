"""What a chat-completions request asks for, by its shape alone.

- `extract`: the response format's JSON schema has a property `gross`;
- `categorize`: it has a property `category` with an enumeration;
- `agent`: everything else, with tools or without.

Not guaranteed: any other structured answer. A response format of neither kind is refused (400) by its name.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_RECEIPT = re.compile(r"<receipt>\n?(.*)</receipt>", re.DOTALL)
_TRANSACTION = re.compile(r"<transaction>\n?(.*)</transaction>", re.DOTALL)


class Kind(StrEnum):
    """The kinds of requests that the bookkeeping makes."""

    EXTRACT = "extract"
    CATEGORIZE = "categorize"
    AGENT = "agent"


class NotUnderstood(Exception):
    """Raised when a request is not one that the API would take; the text says what was found."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, read."""

    kind: Kind
    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    categories: list[str]
    prompt_tokens: int

    def receipt(self) -> str:
        """The text between the first user message's <receipt> tags; the whole message without them."""
        return _tagged(_RECEIPT, self.question())

    def transaction(self) -> str:
        return _tagged(_TRANSACTION, self.question())

    def question(self) -> str:
        return next((content(message) for message in self.messages if message.get("role") == "user"), "")


def read(body: bytes) -> Asked:
    """Raises `NotUnderstood`."""
    try:
        sent = json.loads(body)
    except ValueError:
        sent = None
    if not isinstance(sent, dict):
        raise NotUnderstood("We could not parse the JSON body of your request.")
    model, messages, tools = sent.get("model"), sent.get("messages"), sent.get("tools") or []
    if not isinstance(model, str) or not model:
        raise NotUnderstood("you must provide a model parameter")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) and "role" in m for m in messages):
        raise NotUnderstood("Invalid 'messages': expected a list of at least one message with a role.")
    if not isinstance(tools, list) or not all(isinstance(t, dict) and _tool_name(t) for t in tools):
        raise NotUnderstood("Invalid 'tools': expected a list of functions with a name.")
    _check_tool_results(messages)
    kind, categories = _kind(sent.get("response_format"))
    return Asked(kind, model, messages, tools, categories, tokens(body.decode(errors="replace")))


def content(message: dict[str, Any]) -> str:
    """A message's text; of one in parts, its text parts."""
    found = message.get("content")
    if isinstance(found, list):
        return "\n".join(part["text"] for part in found if isinstance(part, dict) and isinstance(part.get("text"), str))
    return found if isinstance(found, str) else ""


def tokens(text: str) -> int:
    """About as many as a tokenizer would count."""
    return max(1, len(text) // 4)


def _tagged(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1].strip() if match else text


def _tool_name(tool: dict[str, Any]) -> str | None:
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) and name else None


def _check_tool_results(messages: list[dict[str, Any]]) -> None:
    """As the API does: every tool call is followed by its result before anything else is said."""
    waiting: set[Any] = set()
    for message in messages:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                raise NotUnderstood("Invalid 'messages': a message with role 'tool' must follow its 'tool_calls'.")
            waiting.discard(message["tool_call_id"])
        elif waiting:
            break
        else:
            waiting = {call.get("id") for call in message.get("tool_calls") or () if isinstance(call, dict)}
    if waiting:
        raise NotUnderstood(f"Invalid 'messages': these tool calls have no result: {', '.join(map(str, waiting))}")


def _kind(response_format: Any) -> tuple[Kind, list[str]]:
    if not isinstance(response_format, dict) or response_format.get("type") == "text":
        return Kind.AGENT, []
    named = response_format.get("json_schema")
    schema = named.get("schema") if isinstance(named, dict) else None
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if isinstance(properties, dict) and "gross" in properties:
        return Kind.EXTRACT, []
    category = properties.get("category") if isinstance(properties, dict) else None
    offered = category.get("enum") if isinstance(category, dict) else None
    if isinstance(offered, list) and offered and all(isinstance(name, str) for name in offered):
        return Kind.CATEGORIZE, offered
    name = named.get("name") if isinstance(named, dict) else response_format.get("type")
    raise NotUnderstood(f"Invalid 'response_format': nothing is known of {name!r}; see the kinds in reading.py.")
