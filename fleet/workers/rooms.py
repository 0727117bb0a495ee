"""The supervisor's private folders: its children's boards, in memory where the platform has a place, and their metrics.

They are removed when it ends. Those of one that was killed are removed by the next: a lock that its process held tells
that it is gone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.workers.process import Child

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_PREFIX, _LOCK = "fleet-boards-", "lock"


class Rooms:
    """The folders of one supervisor."""

    def __init__(self) -> None:
        place = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())
        _remove_abandoned(place)
        self.boards = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        self._lock = (self.boards / _LOCK).open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.metrics = self.boards / "metrics"
        self.metrics.mkdir()

    def forget(self, child: Child) -> None:
        """Remove what a child that ended left."""
        from prometheus_client.multiprocess import mark_process_dead

        child.board.remove()
        mark_process_dead(child.pid, path=str(self.metrics))  # type: ignore[no-untyped-call]

    def registry(self) -> CollectorRegistry:
        """The children's metrics, summed at each reading."""
        from prometheus_client import CollectorRegistry
        from prometheus_client.multiprocess import MultiProcessCollector

        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=str(self.metrics))  # type: ignore[no-untyped-call]
        return registry

    def remove(self) -> None:
        """Remove the folders."""
        shutil.rmtree(self.boards, ignore_errors=True)
        self._lock.close()


def _remove_abandoned(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}*"):
        try:
            with (folder / _LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # it lives, or is another user's, or has no lock yet
            continue
        shutil.rmtree(folder, ignore_errors=True)
