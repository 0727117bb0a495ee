"""Does something in a fork of the test's process."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable


def in_a_fork(call: Callable[[], object], seconds: float = 5.0) -> str | None:
    """What this returns or raises there, as text; None, and the fork is killed, if it does not in time."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writes, str(call()).encode())
        except BaseException as error:
            os.write(writes, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writes)
    answered, _, _ = select.select([reads], [], [], seconds)
    answer = os.read(reads, 65_536).decode() if answered else None
    os.close(reads)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return answer
