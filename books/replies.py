"""Bounds what a reply of the world outside may take: `LARGEST_REPLY` of memory as it comes, and nothing to inflate.

An HTTP client holds a reply whole, and inflates a compressed one without a bound: half a megabyte can be a gigabyte.
Here a client asks for replies as they are, gives up a compressed one by its head, and any other in the part that is
too much. Its connection is closed with it.

Not guaranteed: that what is made of a reply is as small. JSON of empty lists is some 25 times as large once it is read,
so `LARGEST_REPLY` is what a lane survives of one, not of many at once. On failure: `ReplyRefused`, from within the
request.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from books.waits import pools
from fleet.errors import FleetError

LARGEST_REPLY = 8 * 1024 * 1024
"""Bytes. Ninety days with a hundred transactions each are 6 MiB; 25 times this fits beside the imports into the
smallest `kill_rss`."""


class ReplyRefused(FleetError):
    """Raised when a reply is given up before it is whole; says what it was, and nothing that stood in it."""


def bound_replies(client: Any) -> None:
    """Have a `httpx.Client` (or one of its fork, which the model's SDK uses) do so, through its proxies too.

    Like `cut_every_wait` by a private place, which `tests/books/test_replies.py` would notice to have moved.
    """
    client.headers["accept-encoding"] = "identity"
    for pool in pools(client):
        pool.handle_request = _bounded(pool.handle_request)


def _bounded(handle_request: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def handle(request: Any) -> Any:
        response = handle_request(request)
        codings = [value for name, value in response.headers if name.lower() == b"content-encoding"]
        if any(coding not in (b"", b"identity") for coding in codings):
            response.close()
            raise ReplyRefused("a compressed reply, which nobody asked for")
        response.stream = _Counted(response.stream)
        return response

    return handle


class _Counted:
    """httpcore's stream of a body. Counts what its parts take in memory, so that a great many tiny ones are bounded."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __iter__(self) -> Iterator[bytes]:
        taken = 0
        for part in self._inner:
            taken += sys.getsizeof(part)
            if taken > LARGEST_REPLY:
                raise ReplyRefused(f"a reply of more than {LARGEST_REPLY} bytes")
            yield part

    def close(self) -> None:
        self._inner.close()
