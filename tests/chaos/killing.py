"""Kills this process's work at its n-th boundary, as SIGKILL would: nothing of it runs on, and nothing is cleaned up.

A boundary is where a statement goes to PostgreSQL or has come back, where a transaction is about to be committed, and
where commands go to Redis or an answer has come back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis.connection import AbstractConnection
from sqlalchemy import Engine, event


class Killed(BaseException):
    """Stands for SIGKILL: no `except Exception` sees it, and whatever transaction is open is rolled back."""


class Boundaries:
    """Counts those that are passed, and raises at the n-th."""

    def __init__(self, at: int) -> None:
        self.at, self.passed = at, 0

    def pass_one(self, *_: Any) -> None:
        self.passed += 1
        if self.passed == self.at:
            raise Killed(f"at boundary {self.at}")


@contextmanager
def killed_at(number: int, *, engine: Engine | None = None, redis: bool = False) -> Iterator[Boundaries]:
    """The block ends at its n-th boundary, or passes all of them: then `passed` is smaller than `number`."""
    boundaries = Boundaries(number)
    hooks = ("before_cursor_execute", "after_cursor_execute", "commit")
    with pytest.MonkeyPatch.context() as patch:
        for name in hooks if engine is not None else ():
            event.listen(engine, name, boundaries.pass_one)
        if redis:
            sent, read = AbstractConnection.send_packed_command, AbstractConnection.read_response

            def send_packed_command(self: Any, *args: Any, **kwargs: Any) -> Any:
                boundaries.pass_one()
                return sent(self, *args, **kwargs)

            def read_response(self: Any, *args: Any, **kwargs: Any) -> Any:
                answer = read(self, *args, **kwargs)
                boundaries.pass_one()
                return answer

            patch.setattr(AbstractConnection, "send_packed_command", send_packed_command)
            patch.setattr(AbstractConnection, "read_response", read_response)
        try:
            yield boundaries
        except Killed:
            pass
        finally:
            for name in hooks if engine is not None else ():
                event.remove(engine, name, boundaries.pass_one)
