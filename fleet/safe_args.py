"""Which of a message's arguments may be told to Sentry: those that its actor lists by `safe_args=`, and no others.

What is not listed is treated as personal: its values are taken out of the texts and variables of whatever is reported
about the job. Not guaranteed: for a number under a thousand, or a single lower-case word, which could be anybody's: it
is left out of the variables that bear a parameter's name, and stays elsewhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dramatiq import Message, MessageProxy

from fleet.errors import DeclarationInvalid, NotDeclared
from fleet.personal import texts_in


@dataclass(frozen=True)
class Arguments:
    """A message's `safe` arguments by name; the names and the texts of all `unsafe` ones."""

    safe: dict[str, Any]
    unsafe_names: frozenset[str]
    unsafe_texts: frozenset[str]


def require_parameters(function: Callable[..., Any], safe_args: tuple[str, ...], place: str) -> None:
    """Raise `DeclarationInvalid` for a safe argument that the function does not take."""
    if isinstance(safe_args, str):
        raise DeclarationInvalid(f"{place}: safe_args={safe_args!r} is one text; give a tuple, ({safe_args!r},).")
    known = [name for name, one in inspect.signature(function).parameters.items() if one.kind is not one.VAR_KEYWORD]
    for name in safe_args:
        if name not in known:
            raise DeclarationInvalid(f"{place}: safe_args={safe_args!r}. {NotDeclared('parameter', name, known)}")


def arguments_of(actor: Any, message: Message[Any] | MessageProxy) -> Arguments:
    """A message's arguments, told apart; all are unsafe if they do not fit the actor's parameters, or it is None."""
    safe_names = set(getattr(actor, "safe_args", ()))
    try:
        bound = inspect.signature(actor.fn).bind_partial(*message.args, **message.kwargs).arguments
    except (AttributeError, TypeError, ValueError):
        bound = {}
    safe = {name: value for name, value in bound.items() if name in safe_names}
    unsafe = [value for name, value in bound.items() if name not in safe_names]
    texts = texts_in(unsafe if bound else [message.args, message.kwargs])
    return Arguments(safe, frozenset(bound.keys() - safe_names), texts)
