"""Looks for pieces of payloads in what left."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.scrubbing.payloads import Payload


def found_in(text: str, payloads: Iterable[Payload]) -> list[str]:
    """The pieces that stand in a text as words of their own, in whatever case, each with what is around it."""
    text = unescaped(text)
    lower, found = text.lower(), []
    for piece in sorted({piece.lower() for payload in payloads for piece in payload.pieces}):
        if piece in lower and (match := re.search(rf"(?<!\w){re.escape(piece)}(?!\w)", lower)):
            found.append(f"{piece!r} in …{text[max(0, match.start() - 120) : match.end() + 40]!r}…")
    return found


def unescaped(text: str) -> str:
    """The text with what a `repr` or JSON has escaped, however often, as it is."""
    return re.sub(r"\\+(?:[nrt]|x([0-9a-f]{2})|u([0-9a-f]{4}))", _sign, text)


def _sign(escaped: re.Match[str]) -> str:
    return chr(int(escaped[1] or escaped[2], 16)) if escaped.lastindex else " "


def missing_from(text: str, payloads: Iterable[Payload]) -> list[str]:
    """The ids of payloads that do not stand in a text."""
    present = set(re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", text))
    return [payload.id for payload in payloads if payload.id not in present]
