"""A text with its escape sequences as what they stand for, each as long as it was: places in both are the same.

In the `repr` of an exception a line's end is a backslash and an `n`, which to an expression is a letter in front of the
next word. A sequence that stands for a letter becomes that letter, as often as the sequence is long; one for a line's
end becomes line ends, and any other blank becomes blanks. How often it was escaped makes no difference.

Not guaranteed: that a backslash was meant as one (`C:\\new`). Such a text is only looked at, never written. On failure:
a sequence that stands for no sign is a blank.
"""

from __future__ import annotations

import re

_SEQUENCE = re.compile(
    r"(?<!\\)\\+(?:(?P<control>[abfnrtv])|x(?P<two>[0-9a-fA-F]{2})|u(?P<four>[0-9a-fA-F]{4})|U(?P<eight>[0-9a-fA-F]{8}))"
)
_LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


def seen_in(text: str) -> str:
    """The text as it is meant, of the same length."""
    return _SEQUENCE.sub(_meant, text) if "\\" in text else text


def _meant(sequence: re.Match[str]) -> str:
    length = sequence.end() - sequence.start()
    if (control := sequence["control"]) is not None:
        return ("\n" if control in "nr" else " ") * length
    code = int(sequence["two"] or sequence["four"] or sequence["eight"], 16)
    sign = chr(code) if code <= 0x10FFFF else " "
    if sign in _LINE_ENDS:
        return "\n" * length
    return (sign if sign.isprintable() and not sign.isspace() else " ") * length
