"""Whether a reason that stands beside a number says more than the number.

Not guaranteed: that it is a good one. It is a list of words; a person reads the rest.
"""

from __future__ import annotations

import re

# A reason made only of these words restates the number beside it.
_FILLER = """
a an the is are be of at for it its this that to as we so because budget soft hard limit timeout deadline
default value time long enough ok fine good second seconds minute minutes hour hours s m h min mins sec
secs max maximum most least about around allowed allow needed
one two three four five six seven eight nine ten fifteen twenty thirty forty fifty sixty ninety hundred thousand half
"""
_EMPTY_WORDS = frozenset(_FILLER.split())


def reason_says_something(because: object) -> bool:
    """Whether a reason is a text that holds at least two words beyond numbers, units and filler."""
    text = because.lower() if isinstance(because, str) else ""
    words = [word for word in re.findall(r"[^\W\d_]+", text) if word not in _EMPTY_WORDS]
    return len(words) >= 2
