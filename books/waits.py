"""Cuts each single wait of an HTTP client to what is left of the job's soft budget: connect, TLS, write, every read.

A request's own timeout is set once, and each of its waits may take that long: a server that accepts late and answers
by drips would hold a job for a multiple of its budget. Here each wait ends with the budget, by `DeadlineExceeded`,
which closes the connection; nothing has to be raised from outside.

Not guaranteed: a bound on the whole call outside a job. Name resolution is one call of C that no timeout cuts.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from fleet import deadline


def cut_every_wait(client: Any) -> None:
    """Have a `httpx.Client` (or one of its fork, which the model's SDK uses) do so, through its proxies too.

    Neither has a public place for a network backend; `tests/books/test_waits.py` would notice if the private one moved.
    """
    for pool in pools(client):
        pool._network_backend = _Backend(pool._network_backend)


def pools(client: Any) -> Iterator[Any]:
    """httpcore's pools of such a client, its own and one a proxy."""
    for transport in (client._transport, *client._mounts.values()):
        if transport is not None:
            yield transport._pool


def _left(timeout: float | None) -> float | None:
    if timeout is None:
        left = deadline.remaining()
        if left is None:
            return None
        timeout = left.total_seconds()
    return deadline.clamp(timedelta(seconds=timeout)).total_seconds()


class _Backend:
    """httpcore's `NetworkBackend`."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **more: Any) -> _Stream:
        return _Stream(self._inner.connect_tcp(host, port, timeout=_left(timeout), **more))

    def connect_unix_socket(self, path: str, timeout: float | None = None, **more: Any) -> _Stream:
        return _Stream(self._inner.connect_unix_socket(path, timeout=_left(timeout), **more))

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(_left(seconds))


class _Stream:
    """httpcore's `NetworkStream`."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        found: bytes = self._inner.read(max_bytes, timeout=_left(timeout))
        return found

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, timeout=_left(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None) -> _Stream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname=server_hostname, timeout=_left(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
