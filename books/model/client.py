"""Asks the model, through the official SDK, with a timeout cut to the job's soft budget and one repair of bad JSON.

An answer that is not the JSON asked for is sent back once, saying what was wrong; the second failure raises. `run` and
`step` go out as the headers `X-Run` and `X-Step`, so that the server's log can be read run by run.

Not guaranteed: any other retry. The SDK's own are off; a failed request raises and the job decides (`refusals` says
which failures may pass by themselves). The timeout bounds each wait for bytes, not their sum; that is bounded by the
job's soft budget (`books.waits`), and their number by `books.replies`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from books.model import prompts
from books.model.refusals import ModelAnswerInvalid, ModelRefused, ModelUnavailable, refusal
from books.model.reply import Reply, ReplyUnreadable, reply_of
from books.model.turns import Message, ModelStep, ToolCall, Usage
from books.replies import ReplyRefused, bound_replies
from books.waits import cut_every_wait
from fleet import deadline

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion

    from books.fields import ReceiptFields

T = TypeVar("T")


class _Unusable(Exception):
    """Raised when an answer cannot be used; the text says why, in words that the model understands."""


class ModelClient:
    """Thread-safe; one a process. Making the first one loads the SDK (up to half a second, some 40 MB).

    `base_url` without a path gets `/v1`. The default timeout is a little over the worst answer seen in production,
    11 minutes; lanes that cannot wait for it have a shorter soft budget.
    """

    def __init__(self, base_url: str, key: str, model: str, timeout: timedelta = timedelta(minutes=12)) -> None:
        import openai

        if not key:
            raise ModelRefused(f"there is no key for the model at {base_url}; put one into the settings")
        self._model, self._timeout = model, timeout
        root = base_url.rstrip("/") if urlsplit(base_url).path.strip("/") else f"{base_url.rstrip('/')}/v1"
        http = openai.DefaultHttpxClient()
        cut_every_wait(http)
        bound_replies(http)
        self._sdk = openai.OpenAI(api_key=key, base_url=root, max_retries=0, http_client=http)
        self._completions = self._sdk.chat.completions

    def close(self) -> None:
        self._sdk.close()

    def extract_fields(self, text: str, *, run: str, step: str) -> ReceiptFields:
        """The fields of a receipt whose text was read before."""
        from books.fields import FieldsInvalid, ReceiptFields

        def read(answer: str) -> ReceiptFields:
            try:
                return ReceiptFields.from_json(answer)
            except FieldsInvalid as error:
                raise _Unusable(str(error)) from None

        return self._json(prompts.receipt_messages(text), prompts.receipt_format(), read, run, step)

    def categorize(
        self, description: str, amount_cents: int, currency: str, categories: Sequence[str], *, run: str, step: str
    ) -> str:
        """One of the given categories; money that went out has a negative amount."""
        if not categories:
            raise ValueError(f"run {run}, step {step}: there are no categories to choose from")

        def read(answer: str) -> str:
            found = _object(answer, "the answer").get("category")
            if found not in categories:
                # Not what was found: a model may answer with words of the transaction, and this goes to the log.
                raise _Unusable(f"category should be one of those offered, found a {type(found).__name__} that is none")
            return str(found)

        messages = prompts.category_messages(description, amount_cents, currency, categories)
        return self._json(messages, prompts.category_format(categories), read, run, step)

    def step(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], *, run: str, step: str) -> ModelStep:
        """One turn of an agent; `messages` and `tools` are in the API's shape, see `turns` for what goes on with it."""
        names = {tool["function"]["name"] for tool in tools}
        asked, usage, wrong = list(messages), Usage(), ""
        for _ in range(2):
            reply = self._ask(asked, run, step, **({"tools": list(tools)} if tools else {}))
            usage = usage + reply.usage
            try:
                return _turn(reply, names, usage)
            except _Unusable as error:
                wrong = str(error)
                asked += _turned_down(reply, wrong)
        raise ModelAnswerInvalid(f"run {run}, step {step}: {wrong}, also when asked again; read the run's messages")

    def _json(
        self, messages: list[Message], answer_format: dict[str, Any], read: Callable[[str], T], run: str, step: str
    ) -> T:
        """What `read` makes of the answer, or of the second one if it raises `_Unusable`."""
        wrong = ""
        for _ in range(2):
            answer = self._ask(messages, run, step, response_format=answer_format).content or ""
            try:
                return read(answer)
            except _Unusable as error:
                wrong = str(error)
                messages = messages + prompts.repair(answer, wrong)
        raise ModelAnswerInvalid(f"run {run}, step {step}: {wrong}, also when asked again; a person has to look")

    def _ask(self, messages: list[Any], run: str, step: str, **more: Any) -> Reply:
        """One request, and what was answered."""
        import openai

        timeout, subject = deadline.clamp(self._timeout).total_seconds(), f"run {run}, step {step}"
        headers = {"X-Run": run, "X-Step": step}
        try:
            completion: ChatCompletion = self._completions.create(
                model=self._model, messages=messages, timeout=timeout, extra_headers=headers, **more
            )
        except (openai.APIConnectionError, ReplyRefused) as error:
            deadline.check()  # a timeout that the budget cut short is the job's end, not the model's fault
            cause = error.__cause__ or error  # releases of the SDK differ in what they wrap
            if isinstance(cause, ReplyRefused):
                raise ModelAnswerInvalid(f"{subject}: found {cause}; check the base URL") from error
            found = f"{type(cause).__name__} after at most {timeout:.0f} s"
            raise ModelUnavailable(f"{subject}: {found}; try again later") from error
        except openai.APIStatusError as error:
            raise refusal(error, subject, self._sdk.api_key) from None  # the SDK's own has the whole body in its text
        except (openai.APIError, ValueError, RecursionError) as error:
            found = f"an answer that is no chat completion ({type(error).__name__})"
            raise ModelAnswerInvalid(f"{subject}: found {found}; check the base URL") from error
        try:
            return reply_of(completion)
        except ReplyUnreadable as error:
            raise ModelAnswerInvalid(f"{subject}: found {error}; check the base URL") from error


def _turn(reply: Reply, names: set[str], usage: Usage) -> ModelStep:
    calls = []
    for call in reply.calls:
        if call.name not in names:
            raise _Unusable(
                f"a tool was called that was not offered; the tools are {', '.join(sorted(names)) or 'none'}"
            )
        calls.append(ToolCall(call.id, call.name, _object(call.arguments, f"the arguments of {call.name}")))
    if not calls and not (reply.content or "").strip():
        raise _Unusable("there was neither a tool call nor an answer")
    return ModelStep(tuple(calls), None if calls else reply.content, usage)


def _turned_down(reply: Reply, wrong: str) -> list[Message]:
    """The turn as it came, each of its tool calls answered by what was wrong: the API wants an answer to each."""
    if not reply.calls:
        return prompts.repair(reply.content or "", wrong)
    error = f"Not called: {wrong}. Call again."
    answers = [{"role": "tool", "tool_call_id": call.id, "content": error} for call in reply.calls]
    return [reply.message(), *answers]


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _Unusable(
            f"{what} should be a JSON object, found {len(text)} characters that are none ({error})"
        ) from None
    if not isinstance(found, dict):
        raise _Unusable(f"{what} should be a JSON object, found a value of type {type(found).__name__}")
    return found
