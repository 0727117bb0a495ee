"""Sound input, changed at random: JSON with parts replaced or gone, bytes flipped, cut, doubled or filled in."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

_TEXT = st.text(max_size=30) | st.sampled_from(["", "\x00", "0", "NaN", "1e400", "12.34", "2026-13-45", "€", "\ud800"])
_NUMBERS = st.integers() | st.floats() | st.sampled_from([0, -1, 2**63, 10**400, 1e308])
JSON = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)
"""Anything that JSON can say, and a little more (NaN, lone surrogates)."""

Path = tuple[Any, ...]


def _places(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from _places(one, (*path, key))


def _replaced(value: Any, path: Path, new: Any, drop: bool) -> Any:
    if not path:
        return new
    changed = copy.copy(value)
    if drop and len(path) == 1:
        del changed[path[0]]
    else:
        changed[path[0]] = _replaced(value[path[0]], path[1:], new, drop)
    return changed


@st.composite
def changed_json(draw: st.DrawFn, sound: Any, new: st.SearchStrategy[Any] = JSON) -> Any:
    """`sound` with one to three of its parts, at any depth, replaced by anything or gone."""
    value = sound
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(_places(value))))
        value = _replaced(value, path, draw(new), draw(st.booleans()))
    return value


_DEEP = "brackets in brackets"
_DEPTHS = st.sampled_from([60, 20_000]) | st.integers(200, 1_000)
"""What every reader takes, what none does, and about where the limit of Python 3.11 is, which depends on who asks."""


@st.composite
def changed_text(draw: st.DrawFn, sound: Any) -> str:
    """`changed_json` as it is written, some of its parts nested deeper than `json.dumps` writes."""
    text = json.dumps(draw(changed_json(sound, JSON | st.just(_DEEP))))
    depth = draw(_DEPTHS)
    return text.replace(f'"{_DEEP}"', "[" * depth + "]" * depth)


@st.composite
def changed_bytes(draw: st.DrawFn, sound: Sequence[bytes]) -> bytes:
    """One of the samples with up to five runs of bytes flipped, cut out, doubled or filled in."""
    content = bytearray(draw(st.sampled_from(list(sound))))
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(content)))
        length = draw(st.sampled_from([1, 2, 4, 40, 4000]))
        how = draw(st.sampled_from(["flip", "cut", "double", "fill"]))
        if how == "flip":
            content[at : at + length] = bytes(byte ^ 0xFF for byte in content[at : at + length])
        elif how == "cut":
            del content[at : at + length]
        elif how == "double":
            content[at:at] = content[at : at + length]
        else:
            content[at:at] = draw(st.binary(max_size=16))
    return bytes(content)
