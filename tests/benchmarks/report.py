"""The table that `make bench` ends with: what was measured on, then each claim's lines; the same as JSON."""

from __future__ import annotations

import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import redis

from tests.benchmarks.contest import Outcome, last_line

_HEAD = ("figure", "ours", "beside", "ratio", "aim", "")
_LOGGED = re.compile(r"\{|\d{4}-\d\d-\d\d[ T]\d\d:")
_SETTINGS = (
    "Valkey on loopback without persistence; what a line says, else each library's defaults. Beside a contender, ours "
    "has the default middleware of Dramatiq, as stock has, except where a line says its whole one, which every worker "
    "of `fleet work` has"
)
_LIBRARIES = ("dramatiq", "redis", "huey")


def show(outcomes: Sequence[Outcome], versions: str, rounds: int) -> None:
    """Print the machine, the versions, and every line."""
    print(f"\n{_machine()}\n{versions}")
    print(
        f"Medians of {rounds}, one of what takes minutes; contenders in turn; lowest and highest in brackets. The ratio"
        " says how many times better ours is.\n"
        "The load average is the last minute's when a line began: what the lines before it did is in it.\n"
    )
    cells = [_HEAD, *(line.cells() for outcome in outcomes for line in outcome.lines)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD))]
    for outcome in outcomes:
        print(f"{outcome.claim.name}: {outcome.claim.work} (load average {outcome.load:.2f})")
        for row in (_HEAD, *(line.cells() for line in outcome.lines)):
            print("  " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(" |"))
        for words in outcome.failed:
            print(f"  FAILED: {words}")
        print()


def as_json(outcomes: Sequence[Outcome], said: dict[str, dict[str, Any]], versions: str, rounds: int) -> dict[str, Any]:
    """What `tests.benchmarks.page` reads; `said` is what lines without a contender printed."""
    return {
        "measured": time.strftime("%Y-%m-%d"),
        "machine": _machine(),
        "versions": versions,
        "rounds": rounds,
        "once": [outcome.claim.name for outcome in outcomes if outcome.claim.once],
        "settings": _SETTINGS,
        "claims": [
            {
                "name": outcome.claim.name,
                "work": outcome.claim.work,
                "load": round(outcome.load, 2),
                "lines": [asdict(line) for line in outcome.lines],
                "failed": list(outcome.failed),
            }
            for outcome in outcomes
        ],
        "alone": said,
    }


def said_by(work: Callable[[], None]) -> tuple[list[str], bool]:
    """Do it; what it and its child processes printed, without their log, and whether it went through.

    It is printed when it is over. What it raised is said behind it, and goes no further.
    """
    sys.stdout.flush()
    kept, failed = os.dup(1), ""
    with tempfile.TemporaryFile() as taken:
        os.dup2(taken.fileno(), 1)
        try:
            work()
        except Exception as error:
            failed = f"failed: {last_line(error)}"
        finally:
            sys.stdout.flush()
            os.dup2(kept, 1)
            os.close(kept)
            taken.seek(0)
            said = taken.read().decode().strip()
            print("\n".join(filter(None, (said, failed))), flush=True)
    lines = [line.strip() for line in said.splitlines() if line.strip() and not _LOGGED.match(line)]
    return [*lines, failed] if failed else lines, not failed


def _machine() -> str:
    models = {
        line.partition(":")[2].strip()
        for line in (Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ())
        if line.startswith("model name")
    }
    cores = f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} CPUs"
    return ", ".join([platform.machine(), *sorted(models), cores, f"{platform.system()} {platform.release()}"])


def versions_of(client: redis.Redis) -> str:
    """Python's, the libraries' and the server's."""
    server = client.info("server")
    name = f"{server.get('server_name', 'redis')} {server.get('valkey_version', server['redis_version'])}"
    libraries = ", ".join(f"{library} {version(library)}" for library in _LIBRARIES)
    return f"Python {platform.python_version()}, {libraries}, server {name}"
