"""Whether two inputs are the same: the digest of a JSON value, whatever the order of its keys.

Not guaranteed: one digest for numbers that are equal and written differently (1 and 1.0). A value that JSON does not
have raises `TypeError`.
"""

from __future__ import annotations

import hashlib
import json


def digest(value: object) -> str:
    """The SHA-256 of a JSON value, in hex."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
