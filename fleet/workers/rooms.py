"""The supervisor's private folders: its children's boards, in memory where the platform has a place, and their metrics.

They are removed when it ends. Those of one that was killed are removed by the next: a lock that its process held tells
that it is gone.

What a child counted is added to one file when it is gone: with a file for each that ever was, every reading of the
metrics would cost more than the one before.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.logs import get_logger
from fleet.workers.process import Child

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric
    from prometheus_client.registry import Collector

log = get_logger(__name__)

_COUNTED = ("counter", "histogram", "summary")
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
        self._counting = threading.Lock()

    def forget(self, child: Child) -> None:
        """Remove what a child that ended left."""
        from prometheus_client.multiprocess import mark_process_dead

        child.board.remove()
        with self._counting:
            mark_process_dead(child.pid, path=str(self.metrics))  # type: ignore[no-untyped-call]
            for kind in _COUNTED:
                _add(self.metrics / f"{kind}_{child.pid}.db", self.metrics / f"{kind}_gone.db")

    def registry(self) -> CollectorRegistry:
        """The children's metrics, summed at each reading."""
        from prometheus_client import CollectorRegistry
        from prometheus_client.multiprocess import MultiProcessCollector

        registry = CollectorRegistry()
        collector = MultiProcessCollector(None, path=str(self.metrics))  # type: ignore[no-untyped-call]
        registry.register(_Undisturbed(collector, self._counting))
        return registry

    def remove(self) -> None:
        """Remove the folders."""
        shutil.rmtree(self.boards, ignore_errors=True)
        self._lock.close()


class _Undisturbed:
    """A collector that does not read while counts move from one file to another."""

    def __init__(self, collector: Collector, counting: threading.Lock) -> None:
        self._collector, self._counting = collector, counting

    def collect(self) -> Iterable[Metric]:
        with self._counting:
            return self._collector.collect()


def _add(gone: Path, sums: Path) -> None:
    """Add a dead child's counts to those of all before it; one that died while it wrote may have spoilt its own."""
    from prometheus_client.mmap_dict import MmapedDict

    if not gone.exists():
        return
    try:
        counts = list(MmapedDict.read_all_values_from_file(gone))  # type: ignore[no-untyped-call]
    except Exception as error:
        log.warning("metrics_unreadable", file=gone.name, error=repr(error)[:300])
        counts = []
    total = MmapedDict(sums)  # type: ignore[no-untyped-call]
    for key, value, *_ in counts:
        before, _ = total.read_value(key)  # type: ignore[no-untyped-call]
        total.write_value(key, before + value, 0.0)  # type: ignore[no-untyped-call]
    total.close()  # type: ignore[no-untyped-call]
    gone.unlink()


def _remove_abandoned(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}*"):
        try:
            with (folder / _LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # it lives, or is another user's, or has no lock yet
            continue
        shutil.rmtree(folder, ignore_errors=True)
