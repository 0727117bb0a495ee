"""Looks for pieces of payloads in what left."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.scrubbing.payloads import Payload


def found_in(text: str, payloads: Iterable[Payload]) -> list[str]:
    """The pieces that stand in a text as words of their own, in whatever case, each with what is around it."""
    lower, found = text.lower(), []
    for piece in sorted({piece.lower() for payload in payloads for piece in payload.pieces}):
        if piece in lower and (match := re.search(rf"(?<!\w){re.escape(piece)}(?!\w)", lower)):
            found.append(f"{piece!r} in …{text[max(0, match.start() - 120) : match.end() + 40]!r}…")
    return found


def missing_from(text: str, payloads: Iterable[Payload]) -> list[str]:
    """The ids of payloads that do not stand in a text."""
    present = set(re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", text))
    return [payload.id for payload in payloads if payload.id not in present]
