"""What another side said, without what of ours it repeats: some name the key that they turn down.

Not guaranteed: a part of one, or one that is written otherwise than it was sent.
"""

from __future__ import annotations

from collections.abc import Iterable

from fleet.known import REMOVED


def without(said: str, secrets: Iterable[str]) -> str:
    """The text with `[removed]` where a secret stood."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        said = said.replace(secret, REMOVED)
    return said
