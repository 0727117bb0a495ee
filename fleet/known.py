"""Texts that are known to be personal, and a text without them.

They are found as words of their own, in capitals too, and however a `repr` or JSON escapes them.

Not guaranteed: one in other capitals, or a part of one. On failure: nothing here raises for any text.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from fleet.escapes import seen_in

REMOVED = "[removed]"
_PLAIN = re.compile(r"[\x21-\x5b\x5d-\x7e]*")


class Known:
    """Texts that are known to be personal; an expression is made of them when the first text has one."""

    def __init__(self, texts: Collection[str]) -> None:
        forms = {form for one in texts for form in (one, one.upper()) if form.strip()}
        self._longest_first = sorted(forms, key=len, reverse=True)
        self._begins = {max(_PLAIN.findall(form), key=len) for form in forms}
        self._pattern: re.Pattern[str] | None = None

    def taken_out_of(self, text: str) -> str:
        """The text without these."""
        if not any(begin in text for begin in self._begins):
            return text
        seen = seen_in(text)
        if self._pattern is None:
            self._pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(_expression, self._longest_first))})(?!\w)")
        parts: list[str] = []
        at = 0
        for found in self._pattern.finditer(seen):
            parts += (text[at : found.start()], REMOVED)
            at = found.end()
        return "".join((*parts, text[at:]))


def knowing(texts: Collection[str]) -> Known | None:
    """What is known by these texts; None if there are none."""
    return Known(texts) if texts else None


def _expression(form: str) -> str:
    """A form as `fleet.escapes` sees it: its blanks may be any, and other signs repeated where they were escaped."""
    return r"\s+".join("".join(map(_sign, word)) for word in form.split())


def _sign(sign: str) -> str:
    if sign in "\"'":
        return rf"\\*{sign}"
    if sign == "\\":
        return r"\\+"
    return re.escape(sign) if sign.isascii() else f"{re.escape(sign)}+"
