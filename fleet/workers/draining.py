"""Drain a lane by hand: SIGTERM to its supervisors on this host, found by what they report, and wait for their end.

A reported pid is signalled only if it is a `fleet work LANE` process now: a report outlives its process by 10 s, and
another container's pid means nothing here. A supervisor that drains already is left alone, since a second SIGTERM would
cut its jobs short.

Not guaranteed: that a drain begun less than a second ago is known (reports come once a second), nor that the lane stays
drained: a service manager that restarts what ended will start it again.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psutil

from fleet.clock import clock
from fleet.workers.presence import DRAINING, Report

_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Drain:
    """What was done with a lane's supervisors.

    `signalled` and `draining` (before, already) are processes of this host; `elsewhere` is reported by other hosts;
    `refused` is pid -> why it was left alone.
    """

    lane: str
    signalled: tuple[psutil.Process, ...]
    draining: tuple[psutil.Process, ...]
    elsewhere: tuple[Report, ...]
    refused: dict[int, str]

    @property
    def began(self) -> bool:
        """Whether anything drains here."""
        return bool(self.signalled or self.draining)

    def lines(self) -> Iterator[str]:
        """What a person should know, a sentence each."""
        for process in self.signalled:
            yield f"Lane {self.lane} drains: pid {process.pid} was told to end."
        for process in self.draining:
            yield f"Lane {self.lane} drains already: pid {process.pid}, not told again, which would cut its jobs short."
        for pid, why in self.refused.items():
            yield f"Lane {self.lane}: pid {pid} was left alone: {why}."
        for report in self.elsewhere:
            yield (
                f"Lane {self.lane} also runs on {report.host} as pid {report.pid}: "
                f"say `fleet drain {self.lane}` there, or stop that container."
            )
        if not self.began:
            yield f"No supervisor of lane {self.lane} was told to end on {socket.gethostname()}."


def drain(reports: Iterable[Report], lane: str) -> Drain:
    """Tell the lane's supervisors on this host to end, by SIGTERM; `reports` as from `presence.present`."""
    host = socket.gethostname()
    supervisors = [report for report in reports if report.kind == "supervisor" and report.name == lane]
    signalled, draining, refused = [], [], {}
    for report in supervisors:
        if report.host != host:
            continue
        try:
            process = psutil.Process(report.pid)
            _require_supervisor(process, lane)
            if report.phase == DRAINING:
                draining.append(process)
            else:
                process.terminate()  # psutil looks first whether the pid was given to another process meanwhile
                signalled.append(process)
        except psutil.NoSuchProcess:
            refused[report.pid] = "it has ended"
        except psutil.AccessDenied:
            refused[report.pid] = "it belongs to another user; say it as that one"
        except _AnotherProcess as error:
            refused[report.pid] = str(error)
    elsewhere = tuple(report for report in supervisors if report.host != host)
    return Drain(lane, tuple(signalled), tuple(draining), elsewhere, refused)


def wait_until_gone(processes: Iterable[psutil.Process], limit: timedelta) -> list[psutil.Process]:
    """Wait for the end of these processes; returns those that still run after the limit."""
    ends = clock.monotonic() + limit.total_seconds()
    while (left := [process for process in processes if _runs(process)]) and clock.monotonic() < ends:
        time.sleep(_LOOK_SECONDS)
    return left


class _AnotherProcess(Exception):
    """Raised when a reported pid is no supervisor of the lane."""


def _require_supervisor(process: psutil.Process, lane: str) -> None:
    words = process.cmdline()
    program = [Path(word).name for word in words]
    places = [place for place, word in enumerate(words[:-1]) if word == "work" and words[place + 1] == lane]
    if not any("fleet" in program[:place] for place in places):
        raise _AnotherProcess(f"it is no `fleet work {lane}` process, but {process.name()!r}")


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
