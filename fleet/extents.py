"""Where a value ends that begins at a place in a text: one in quotes, one in brackets, or a bare one.

What is open stays open to the end of its line, so that a text that was cut hides too much rather than too little. The
brackets of JSON in lines and of `pprint` are followed from line to line. Each walks over a sign once.

Not guaranteed: anything behind the first 120 signs of a bare value. On failure: nothing here raises for any text.
"""

from __future__ import annotations

import re

_OPENING = re.compile(r"[bBrRuUfFeExXnN]{0,2}(?P<quote>\\*['\"])|[\w.]{0,80}(?P<bracket>[\[({])")
_QUOTE = re.compile(r"(?<!\\)(?P<escaped>\\*)(?P<sign>['\"])|\n")
_NEXT = re.compile(r"(?<=[^\WbBrRuUfF])'(?=\w)|(?<!\\)(?P<quote>\\*['\"])|[\[({\])}\n]")
_BARE = re.compile(
    r"(?:(?!\s{1,20}[\w.]{1,60}\s?[=:]|&[\w.]{1,60}=|\s[-–—]\s|\.\s)(?:[^,;)\]}|\n\"']|(?<=[\w\\])'(?=\w))){0,120}"
)
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s'\"]*")
_NUMBER = re.compile(r"[-−+]?[\d.,'’\u202f]*\d")
_BEFORE_A_VALUE = ("=", "(", "[", "{", ":", ",", ": ", ", ", "= ")
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def value_end(text: str, seen: str, at: int) -> int:
    """Behind the value that begins at a place; the place itself where none does. `seen` is of `fleet.escapes`."""
    end = enclosed_end(text, seen, at)
    if end is not None:
        return end
    bare = _URL.match(seen, at) or _BARE.match(seen, at)
    return bare.end() if bare is not None else at


def amount_end(text: str, seen: str, at: int) -> int:
    """The same for an amount, which is a number where it stands in nothing."""
    end = enclosed_end(text, seen, at)
    if end is not None:
        return end
    number = _NUMBER.match(seen, at)
    return number.end() if number is not None else at


def line_end(text: str, at: int) -> int:
    """Where the line ends that a place is in."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def enclosed_end(text: str, seen: str, at: int) -> int | None:
    """Behind the quotes or brackets, or the call, that open at a place; None where none do."""
    opening = _OPENING.match(seen, at)
    if opening is None:
        return None
    if (quote := opening["quote"]) is not None:
        return _quoted_end(text, seen, quote, opening.end())
    return _bracketed_end(text, seen, opening.start("bracket"))


def _quoted_end(text: str, seen: str, opening: str, at: int) -> int:
    """Behind the quote that closes an `opening`: one with as many backslashes, of which only a single one counts."""
    escaped, sign = len(opening) - 1, opening[-1]
    while (found := _QUOTE.search(text, at)) is not None:
        at = found.end()
        if found["sign"] is None:  # the line's end
            return found.start()
        if found["sign"] != sign:
            continue
        here = len(found["escaped"])
        if here < escaped:  # what this one stands in ends
            return found.start()
        if here % (2 * escaped + 2) == escaped:
            if text.startswith(opening, at):  # doubled, as in SQL
                at += len(opening)
            elif not seen[at : at + 1].isalnum():  # else an apostrophe, or the next value's begin
                return at
            elif text.endswith(_BEFORE_A_VALUE, 0, found.start()):  # so this one was left open
                return line_end(text, at)
    return len(text)


def _bracketed_end(text: str, seen: str, at: int) -> int:
    """Behind the bracket that closes the one at a place, whatever stands in quotes between them."""
    closings: list[str] = []
    while (found := _NEXT.search(text, at)) is not None:
        sign, at = found[0], found.end()
        if found["quote"] is not None:
            at = _quoted_end(text, seen, sign, at)
        elif sign in _CLOSING:
            closings.append(_CLOSING[sign])
        elif sign == "\n":
            if not _goes_on(text, found.start()):
                return found.start()
        elif sign == closings[-1]:
            closings.pop()
            if not closings:
                return at
    return len(text)


def _goes_on(text: str, line_end: int) -> bool:
    """Whether what is in brackets goes on in the next line."""
    before, behind = text[max(0, line_end - 40) : line_end].rstrip(), text[line_end : line_end + 200].lstrip()
    return before[-1:] in (",", "[", "(", "{") or behind[:1] in ("]", ")", "}")
