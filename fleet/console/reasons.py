"""The reason that every act on the pages needs, and what an act answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fleet.errors import DeclarationInvalid
from fleet.reasons import reason_says_something


class Done(NamedTuple):
    """The page to go back to, and what it says."""

    back: str
    said: str


def reason(given: Mapping[str, str]) -> str:
    """The reason that was given; raises `DeclarationInvalid` for one that says nothing."""
    because = given.get("because", "").strip()
    if not reason_says_something(because):
        raise DeclarationInvalid(f"Why? {because!r} says nothing: a few words, for whoever reads the audit next.")
    return because
