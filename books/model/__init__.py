"""The language model behind an OpenAI-compatible endpoint: fields of a receipt, categories, and the turns of an agent.

`client` speaks to it through the official SDK, `prompts` says what it is asked, `turns` what a turn looks like,
`refusals` names what went wrong. Importing any of them opens no connection and loads neither the SDK nor pydantic.
"""

from books.model.client import ModelClient
from books.model.refusals import ModelAnswerInvalid, ModelRateLimited, ModelRefused, ModelUnavailable
from books.model.turns import ModelStep, ToolCall, Usage

__all__ = [
    "ModelAnswerInvalid",
    "ModelClient",
    "ModelRateLimited",
    "ModelRefused",
    "ModelStep",
    "ModelUnavailable",
    "ToolCall",
    "Usage",
]
