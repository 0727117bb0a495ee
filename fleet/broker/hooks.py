"""Calls the hooks of a broker's middleware, and notes one that breaks for the end of the message it broke over.

Stock logs such an exception and goes on as if nothing had been. Only hooks that a middleware defines are called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import Middleware, MiddlewareError

from fleet.broker.ends import current
from fleet.logs import get_logger

log = get_logger(__name__)


class HookedBroker(RedisBroker):
    """Stock's broker but for how it calls hooks. Who makes one sets `_hooks`, since stock's constructor is not run."""

    _hooks: tuple[list[Middleware], dict[str, list[Callable[..., Any]]]]

    def emit_before(self, signal: str, *args: Any, **kwargs: Any) -> None:
        """As stock, calling only hooks that a middleware defines; one that breaks is noted for the message's end."""
        for hook in self._hooks_of(f"before_{signal}"):
            try:
                hook(self, *args, **kwargs)
            except MiddlewareError:
                raise
            except Exception as error:
                _hook_broke(f"before_{signal}", hook, error, args)

    def emit_after(self, signal: str, *args: Any, **kwargs: Any) -> None:
        """As stock, in reverse order; a hook that breaks is noted for the message's end."""
        for hook in self._hooks_of(f"after_{signal}"):
            try:
                hook(self, *args, **kwargs)
            except Exception as error:
                _hook_broke(f"after_{signal}", hook, error, args)

    def _hooks_of(self, name: str) -> list[Callable[..., Any]]:
        listed, known = self._hooks
        if listed != self.middleware:  # which anybody may edit
            listed, known = self._hooks = (list(self.middleware), {})
        hooks = known.get(name)
        if hooks is None:
            order = listed if name.startswith("before_") else reversed(listed)
            stock = getattr(Middleware, name, None)
            hooks = [getattr(m, name) for m in order if getattr(type(m), name, None) is not stock or name in vars(m)]
            known[name] = hooks
        return hooks


def _hook_broke(name: str, hook: Callable[..., Any], error: Exception, args: tuple[Any, ...]) -> None:
    log.exception("hook_broke", hook=name, middleware=type(getattr(hook, "__self__", hook)).__name__, error=repr(error))
    settling = current.settling
    # A hook that breaks over another message, one that a job sends, is no reason to run this one again.
    if (
        settling is not None
        and not settling.in_body
        and args
        and getattr(args[0], "message_id", None) == settling.message_id
    ):
        settling.broken_hook = error
