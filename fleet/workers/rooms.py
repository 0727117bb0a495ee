"""The supervisor's private folders: its children's boards, in memory where the platform has a place, and their metrics.

They are removed when it ends. Those of one that was killed are removed by the next: a lock that its process held tells
that it is gone.

What a child counted is added to one file a kind when it is gone: with a file for each that ever was, every reading of
the metrics would cost more than the one before. An application's own metrics too: a gauge of a process that is gone is
its part of a sum, a least, a most or a latest, or none any more. What the supervisor itself counts is added when the
metrics are read, so that each name stands there once.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from fleet.logs import brief, get_logger
from fleet.workers.process import Child

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric
    from prometheus_client.registry import Collector

log = get_logger(__name__)

_Stored = tuple[float, float]  # a value, and when it was set where that matters
_Joins = Callable[[_Stored, _Stored], _Stored]


def _added(one: _Stored, other: _Stored) -> _Stored:
    return one[0] + other[0], 0.0


_JOINED: dict[str, _Joins] = {
    "counter": _added,
    "histogram": _added,
    "summary": _added,
    "gauge_sum": _added,
    "gauge_min": min,
    "gauge_max": max,
    "gauge_mostrecent": lambda one, other: max(one, other, key=lambda stored: stored[1]),
}
_PREFIX, _LOCK = "fleet-boards-", "lock"


class Rooms:
    """The folders of one supervisor."""

    def __init__(self) -> None:
        place = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())
        _remove_abandoned(place)
        self.boards, self._lock = _made(place)
        self.metrics = self.boards / "metrics"
        self.metrics.mkdir()
        self._counting = threading.Lock()

    def forget(self, child: Child) -> None:
        """Remove what a child that ended left."""
        child.board.remove()
        self.count_in(child.pid)

    def count_in(self, pid: int) -> None:
        """Keep what a process that is gone has counted, and no file of its own."""
        with self._counting:
            for file in self.metrics.glob(f"*_{pid}.db"):
                kind = file.name.removesuffix(f"_{pid}.db")
                if kind in _JOINED:
                    _join(file, self.metrics / f"{kind}_gone.db", _JOINED[kind])
                file.unlink()

    def registry(self, own: Collector | None = None) -> CollectorRegistry:
        """The children's metrics and this process's `own` (by default, all) of the engine, summed at each reading."""
        from prometheus_client import REGISTRY, CollectorRegistry
        from prometheus_client.multiprocess import MultiProcessCollector

        registry = CollectorRegistry()
        collector = MultiProcessCollector(None, path=str(self.metrics))  # type: ignore[no-untyped-call]
        registry.register(_Summed(collector, self._counting, own or REGISTRY))
        return registry

    def remove(self) -> None:
        """Remove the folders."""
        shutil.rmtree(self.boards, ignore_errors=True)
        self._lock.close()


class _Summed:
    """A collector that does not read while counts move from one file to another, and adds the supervisor's own."""

    def __init__(self, children: Collector, counting: threading.Lock, own: Collector) -> None:
        self._children, self._counting, self._own = children, counting, own

    def describe(self) -> Iterable[Metric]:
        return ()  # or the registry would read everything to learn the names

    def collect(self) -> Iterable[Metric]:
        with self._counting:
            found = {metric.name: metric for metric in self._children.collect()}
        for metric in self._own.collect():
            if metric.name.startswith("fleet_"):
                found.setdefault(metric.name, type(metric)(metric.name, metric.documentation, metric.type))
                _add_samples(found[metric.name], metric)
        return found.values()


def _add_samples(to: Metric, own: Metric) -> None:
    """Add values under the same labels: a scrape in which a series stands twice is refused."""
    places = {(sample.name, tuple(sorted(sample.labels.items()))): place for place, sample in enumerate(to.samples)}
    for sample in own.samples:
        place = places.get((sample.name, tuple(sorted(sample.labels.items()))))
        if place is not None:
            to.samples[place] = to.samples[place]._replace(value=to.samples[place].value + sample.value)
        elif not sample.name.endswith("_created"):
            to.samples.append(sample)


def _join(gone: Path, sums: Path, join: _Joins) -> None:
    """Join a dead child's counts with those of all before it; one that died while it wrote may have spoilt its own."""
    from prometheus_client.mmap_dict import MmapedDict

    try:
        counts = list(MmapedDict.read_all_values_from_file(gone))  # type: ignore[no-untyped-call]
    except Exception as error:
        log.warning("metrics_unreadable", file=gone.name, error=brief(error))
        counts = []
    total = MmapedDict(sums)  # type: ignore[no-untyped-call]
    known = {key: (value, at) for key, value, at in total.read_all_values()}  # type: ignore[no-untyped-call]
    for key, value, at, *_ in counts:
        joined = join(known[key], (value, at)) if key in known else (value, at)
        total.write_value(key, *joined)  # type: ignore[no-untyped-call]
    total.close()  # type: ignore[no-untyped-call]


def _made(place: Path) -> tuple[Path, BinaryIO]:
    """A folder of one's own, locked. Until it is, another supervisor that starts takes it for abandoned."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        lock = (folder / _LOCK).open("wb")
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / _LOCK).exists():
            return folder, lock
        lock.close()


def _remove_abandoned(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}*"):
        try:
            with (folder / _LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)  # under its lock: one that is just being made finds it gone
        except OSError:  # it lives, or is another user's, or has no lock yet
            continue
