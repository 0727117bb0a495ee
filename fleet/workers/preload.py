"""What a worker process does before it takes its first message: import what bodies import, and call the lane's `warm`.

Otherwise the first job of each process does, with somebody waiting for it: imports of a second, the first connection.

Not guaranteed: that `warm` ended, or went well. What it raises is logged, it is waited for `WARM_WITHIN` at most and
not once the process is told to end, and then the process serves: the first job meets what is wrong, and can say so.
"""

from __future__ import annotations

import dis
import importlib
import importlib.util
import threading
from collections.abc import Iterator
from datetime import timedelta
from types import CodeType

from fleet.app import App, warm_of
from fleet.bell import Bell
from fleet.clock import clock
from fleet.declarations import Lane
from fleet.logs import get_logger

log = get_logger(__name__)

WARM_WITHIN = timedelta(seconds=30)  # real: a server that is away must not keep the lane from what needs it not
_POLL_SECONDS = 0.02


def imported_by(code: CodeType) -> Iterator[str]:
    """The modules that a function imports when it runs, and what it takes from them, by their full names."""
    module = ""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            module = str(instruction.argval)
            yield module
        elif instruction.opname == "IMPORT_FROM":
            yield f"{module}.{instruction.argval}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from imported_by(constant)


def preload(app: App, lane: Lane) -> None:
    """Import what the lane's bodies will; what cannot be is left to the body, which then raises by itself."""
    for actor in app.actors.values():
        if actor.queue_name not in lane.queues:
            continue
        for name in imported_by(actor.fn.__code__) if hasattr(actor.fn, "__code__") else ():
            try:
                if importlib.util.find_spec(name) is not None:
                    importlib.import_module(name)
            except Exception as error:  # a name taken from a module is none; or its import is what is broken
                log.debug("not_preloaded", module=name, error=repr(error))


def warm(lane: Lane, stir: Bell) -> None:
    """Call the lane's `warm`, if it has one, in a thread of its own."""
    if lane.warm is None:
        return  # no thread for nothing
    began = clock.monotonic()
    thread = threading.Thread(target=_warmed, args=(lane,), name="warm", daemon=True)
    thread.start()
    while thread.is_alive() and not stir.wait(_POLL_SECONDS):
        if clock.monotonic() - began > WARM_WITHIN.total_seconds():
            log.warning("warm_goes_on", lane=lane.name, warm=lane.warm, after=str(WARM_WITHIN))
            return


def _warmed(lane: Lane) -> None:
    try:
        warm_of(lane)()
    except Exception:
        log.warning("warm_failed", lane=lane.name, warm=lane.warm, exc_info=True)
