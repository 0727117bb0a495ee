"""`python -m tests.benchmarks.peers [--only NAME] [--peer NAME] [--rounds N] [--json FILE]`: Nightshift beside others.

Each library runs in an environment of its own, made from hashed requirements (`make bench-peers`), on one embedded
Valkey without persistence. Contenders take turns; medians are printed. What a library cannot do is said in its place.
The file of figures is written after each measure. What nobody foresaw is told, does not end the run, and makes the exit
status 1.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from rich.console import Console
from rich.table import Table

from fleet import embedded
from tests.benchmarks.contest import TRIES, last_line
from tests.benchmarks.page import told
from tests.benchmarks.peers.measures import MEASURES, Measure
from tests.benchmarks.peers.stage import CONTENDERS, Contender, Failed, running

Cell = dict[str, list[float]] | str


def main() -> None:
    """Measure, print, and write what was measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers", description=__doc__)
    parser.add_argument("--only", default="", metavar="NAME", help="only measures with this in their name")
    parser.add_argument("--peer", default="", metavar="NAME", help="only contenders with this in their label")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go, for docs/benchmarks.md")
    asked = parser.parse_args()
    if asked.rounds < 1:
        parser.error(f"--rounds {asked.rounds}: at least 1")
    contenders = [one for one in CONTENDERS if asked.peer in one.label and one.installed]
    measures = [one for one in MEASURES if asked.only in one.name and any(map(one.is_for, contenders))]
    with (
        tempfile.TemporaryDirectory(prefix="fleet-peers-") as folder,
        embedded.servers(Path(folder), embedded.Wanted(valkey=True, postgres=False)) as urls,
    ):
        redis.Redis.from_url(urls.redis_url).config_set("appendonly", "no")
        written: dict[str, Any] = {
            "measured": time.strftime("%Y-%m-%d"),
            "machine": _machine(urls.redis_url, contenders),
            "rounds": asked.rounds,
            "once": [one.name for one in measures if one.once],
            "settings": {one.label: one.stated for one in contenders},
            "works": {},
            "loads": {},
            "figures": {},
            "failed": {},
        }
        surprised = False
        for one in measures:
            written["works"][one.name] = [one.work, one.unit, one.higher_is_better]
            written["loads"][one.name] = round(os.getloadavg()[0], 2)
            among = list(filter(one.is_for, contenders))
            found = _play(one, among, urls.redis_url, Path(folder), asked.rounds)
            written["figures"][one.name] = found.cells(among)
            written["failed"][one.name] = found.failed()
            surprised = surprised or found.surprised
            if asked.json:
                asked.json.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n")
    _show(measures, contenders, written)
    if surprised:
        raise SystemExit("something failed that nobody foresaw; it is said above")


@dataclass
class Found:
    """What a measure found, by the contender's label: figures, and what is said of each round that failed.

    `surprised` says that one failed as no measure foresees.
    """

    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    words: dict[str, list[str]] = field(default_factory=dict)
    surprised: bool = False

    def cells(self, contenders: list[Contender]) -> dict[str, Cell]:
        """Figures, or words where there are none."""
        labels = [one.label for one in contenders]
        return {label: self.figures.get(label) or "; ".join(dict.fromkeys(self.words[label])) for label in labels}

    def failed(self) -> dict[str, str]:
        """What is said beside the figures of who has some, and failed in other rounds."""
        return {
            label: f"{len(said)} round{'s' * (len(said) > 1)} failed: {'; '.join(dict.fromkeys(said))}"
            for label, said in self.words.items()
            if label in self.figures
        }


def _play(measure: Measure, contenders: list[Contender], url: str, folder: Path, rounds: int) -> Found:
    found = Found()
    print(f"{measure.name}: {measure.work} (load average {os.getloadavg()[0]:.2f})", flush=True)
    for turn in range(1 if measure.once else rounds):
        first = turn % len(contenders)
        for contender in contenders[first:] + contenders[:first]:
            if len(found.words.get(contender.label, ())) < TRIES:  # a failure may be minutes of waiting
                _measured(measure, contender, url, folder, found)
    return found


def _measured(measure: Measure, contender: Contender, url: str, folder: Path, found: Found) -> None:
    own = folder / contender.label.split(",")[0]
    own.mkdir(exist_ok=True)
    try:
        with running(contender, url, own) as run:
            seen = measure.measure(run)
    except Exception as error:
        foreseen = isinstance(error, (Failed, subprocess.TimeoutExpired))
        words = str(error)[:200] if foreseen else last_line(error)
        found.surprised = found.surprised or not foreseen
        found.words.setdefault(contender.label, []).append(words)
        print(f"  {contender.label}: {words}", flush=True)
        return
    print(f"  {contender.label}: " + ", ".join(f"{name} {value:,.4g}" for name, value in seen.items()), flush=True)
    cell = found.figures.setdefault(contender.label, {})
    for name, value in seen.items():
        cell.setdefault(name, []).append(value)


def _machine(url: str, contenders: list[Contender]) -> dict[str, str]:
    server: Any = redis.Redis.from_url(url).info("server")
    ask = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
    versions = {
        one.environment: subprocess.run([one.python, "-c", ask, one.environment], capture_output=True, text=True).stdout
        for one in contenders
        if one.environment
    }
    return {
        "python": platform.python_version(),
        "server": f"{server.get('server_name', 'redis')} {server.get('valkey_version', server['redis_version'])}",
        "cpus": f"{len(os.sched_getaffinity(0))}, {platform.machine()}",
        **{library: importlib.metadata.version(library) for library in ("dramatiq", "redis")},
        **{name: version.strip() for name, version in versions.items()},
    }


def _show(measures: list[Measure], contenders: list[Contender], written: dict[str, Any]) -> None:
    console = Console(width=160, markup=False)  # what a failure says may have brackets
    console.print(", ".join(f"{name} {value}" for name, value in written["machine"].items()))
    for contender in contenders:
        console.print(f"{contender.label}: not by default: {contender.stated}", soft_wrap=True)
    for measure in measures:
        table = Table(title=f"{measure.name}: {measure.work}")
        table.add_column("library")
        table.add_column(f"median (lowest to highest), {measure.unit}".rstrip(", "), overflow="fold")
        failed = written["failed"][measure.name]
        for label, cell in written["figures"][measure.name].items():
            table.add_row(label, "; ".join(filter(None, (told(cell), failed.get(label)))))
        console.print(table)


if __name__ == "__main__":
    main()
