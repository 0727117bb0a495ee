"""`python -m tests.benchmarks.night_four_ways`: one night, four ways to admit the elastic work, with the same seeds.

    two       all of it at 02:00, in the middle of the sync, at everybody's priority, nobody decides
    static    the hand-picked minutes, at everybody's priority, nobody decides
    window    chunks at nice 19 from the opening of the window on, nobody decides
    balancer  the house as it stands

With `--faults`, the last one also with something broken at 01:06, in the middle of the sync, by code put into its copy:

    leader    the leading beat is killed
    probe     nobody reads the queues any more
    thread    the balancer's thread hangs
    redis     Redis stands still for a night minute
    redis-10  the same for ten
    frozen    every reading from then on repeats the last one under a fresh stamp

What they must not be is worse than `static`; of what stops everybody, as Redis does, than `static` with the same (say
`static+redis`). Each is the house's own tree, copied, with its lanes and schedule changed, and played by `python -m
books.night` without crashes; so whatever is compared ran in real processes on real servers. "Nobody decides" is a
balancer that is switched off: the cron minute's level is what runs, with chunks as small as the balancer's. The figures
are night time; their ratios are against `static`, and above 1 is worse. Of each night it is told who waited longest,
and when they came; the people of all seeds are pooled below the table. Every second seed is played in the other order.

Not guaranteed: the same figures twice. Only what is drawn is the same; how long it took is this machine's doing, and a
night played 120 times as fast turns 10 ms of the machine into a second. So it wants the machine to itself; what else
ran is told by the load average. Of the sync alone `bank_window` plays more nights in the time. On failure of a night
its way has no figures.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from books.night.figures import quantile
from tests.benchmarks.stage import ROOT

_ROOMS = ("actors", "beat", "books", "config", "fleet", "janitors", "middleware")
_HOUSE = "of_the_house"
_LANES = f"""
from dataclasses import replace
from config.lanes_{_HOUSE} import LANES as HOUSE

LANES = [replace(lane, nice=0) for lane in HOUSE]
"""
_SCHEDULE = f"""
from dataclasses import replace
from datetime import time
from config.schedule_{_HOUSE} import SCHEDULE as HOUSE

SCHEDULE = [
    replace(entry, cron="%d %d * * *", elastic=replace(entry.elastic, slot=time(%d, %d))) if entry.elastic else entry
    for entry in HOUSE
]
"""
_AT_TWO, _AT_OPENING = _SCHEDULE % (0, 2, 2, 0), _SCHEDULE % (31, 0, 0, 31)
_FROM = """

from datetime import datetime as _datetime, timezone as _timezone

_BREAKS_AT = _datetime(2026, 3, 3, 0, 6, tzinfo=_timezone.utc)  # 01:06 in Berlin
"""
_ONCE = """
_decided = Balancing.tick


def _tick(self):
    import os, pathlib, signal, time

    once = pathlib.Path(__file__).parent / "broken"
    if clock.now() >= _BREAKS_AT - timedelta(minutes=1) and not once.exists():
        once.touch()
        time.sleep(max(0.0, clock.to_real(_BREAKS_AT - clock.now()).total_seconds()))
        %s
    _decided(self)


Balancing.tick = _tick
"""
_ON_READING = """
_taken, _last = take, []


def take(broker, by, client=None):
    if clock.now() < _BREAKS_AT or not _last:
        _last[:] = [_taken(broker, by, client)]
        return _last[0]
    %s
"""
_STAMPED = """from dataclasses import replace

    again = replace(_last[0], at=clock.now(), by=by)
    _store(broker, client or broker.client, again, wire.to_ms(clock.to_real_instant(again.at)))
    return again"""
_STOPPED = """server = int(self._client.info("server")["process_id"])
        os.kill(server, signal.SIGSTOP)
        time.sleep(clock.to_real(timedelta(minutes={minutes})).total_seconds())
        os.kill(server, signal.SIGCONT)"""
FAULTS: dict[str, tuple[str, str]] = {
    "leader": ("beat/balancing.py", _ONCE % "os.kill(os.getpid(), signal.SIGKILL)"),
    "probe": ("fleet/readings.py", _ON_READING % "raise RuntimeError('broken on purpose')"),
    "thread": ("beat/balancing.py", _ONCE % "threading.Event().wait()"),
    "redis": ("beat/balancing.py", _ONCE % _STOPPED.format(minutes=1)),
    "redis-10": ("beat/balancing.py", _ONCE % _STOPPED.format(minutes=10)),
    "frozen": ("fleet/readings.py", _ON_READING % _STAMPED),
}
"""Of each: the module that is broken, and the code put behind it."""
WAYS: dict[str, tuple[dict[str, str], list[str]]] = {
    "two": ({"lanes": _LANES, "schedule": _AT_TWO}, ["--no-balance"]),
    "static": ({"lanes": _LANES}, ["--no-balance"]),
    "window": ({"schedule": _AT_OPENING}, ["--no-balance"]),
    "balancer": ({}, []),
}
BROKEN = [*FAULTS, *(f"{way}+{fault}" for way in WAYS for fault in FAULTS)]
_SHOWN = (
    ("people_wait_p99", "people wait, p99", "s"),
    ("people_wait_p95", "people wait, p95", "s"),
    ("people_wait_median", "people wait, median", "s"),
    ("upload_start_p95", "uploads until they start, p95", "s"),
    ("sync_makespan", "sync makespan", "min"),
    ("sync_p95", "sync, until 95 % of the accounts have it", "min"),
    ("left_at_deadline", "left at the deadline", "rows"),
    ("expired", "expired slots", ""),
    ("red", "red lines", ""),
    ("load_before", "load average when it began", ""),
)


def main() -> None:
    """Play, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.night_four_ways", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seconds", type=float, default=240, help="real seconds a night (240)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="a round of nights each (1)")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--backlog", type=int, default=120, help="documents that nobody waits for (120)")
    parser.add_argument("--people", type=int, default=150, help="what people hand in; p99 wants many (150)")
    parser.add_argument("--faults", nargs="+", choices=BROKEN, default=[], help="nights with something broken, beside")
    asked = parser.parse_args()
    ways = [*asked.ways, *asked.faults]
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    waits: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(prefix="four-ways-") as folder:
        for number, seed in enumerate(asked.seeds):
            for way in ways[:: -1 if number % 2 else 1]:
                report = _play(Path(folder) / way.replace("+", "-"), way, asked, seed)
                if report:
                    found[way].append(_told(way, seed, report))
                    waits[way] += [one["seconds"] for one in report["people"]]
    _table(found, {way: sorted(seconds) for way, seconds in waits.items()})


def make(house: Path, way: str) -> None:
    """The house's own tree as this way has it."""
    shutil.rmtree(house, ignore_errors=True)
    for room in _ROOMS:
        shutil.copytree(ROOT / room, house / room, ignore=shutil.ignore_patterns("__pycache__"))
    way, fault = _parts(way)
    for name, text in WAYS[way][0].items():
        (house / "config" / f"{name}.py").rename(house / "config" / f"{name}_{_HOUSE}.py")
        (house / "config" / f"{name}.py").write_text(text)
    if fault:
        module, code = FAULTS[fault]
        with (house / module).open("a") as file:
            file.write(_FROM + code)


def _parts(night: str) -> tuple[str, str]:
    """Its way, and what is broken in it; one that names a fault alone is the balancer's."""
    way, _, fault = night.partition("+")
    return ("balancer", way) if way in FAULTS else (way, fault)


def command(house: Path, way: str, seconds: float, seed: int, backlog: int = 60, people: int = 150) -> list[str]:
    """What plays the night that `house` was made for; its report is in report.json there, its servers in night/."""
    options = WAYS[_parts(way)[0]][1]
    played = [sys.executable, "-m", "books.night", "--seconds", str(seconds), "--seed", str(seed)]
    volumes = ["--backlog", str(backlog), "--submissions", str(people), "--evals", "150", "--no-crashes"]
    return [*played, "--json", str(house / "report.json"), "--folder", str(house / "night"), *volumes, *options]


def _play(house: Path, way: str, asked: argparse.Namespace, seed: int) -> dict[str, Any]:
    """The night's report, and the load before it; nothing of a night that failed."""
    make(house, way)
    written, load = house / "report.json", os.getloadavg()[0]
    played = subprocess.run(
        command(house, way, asked.seconds, seed, asked.backlog, asked.people),
        cwd=house,
        env={**os.environ, "PYTHONPATH": str(house)},
        capture_output=True,
        text=True,
        check=False,
    )
    if not written.is_file():
        print(played.stdout[-3000:], played.stderr[-3000:], file=sys.stderr)
        return {}
    return {**json.loads(written.read_text()), "load_before": round(load, 1)}


def _told(way: str, seed: int, report: dict[str, Any]) -> dict[str, float]:
    """The night's figures, printed with what is red in it and who waited longest."""
    red = [f"{line['claim']} ({line['which']})" for line in report["lines"] if line["verdict"] == "red"]
    left = sum(value for name, value in report["figures"].items() if name.startswith("left_at_deadline"))
    figures = {
        **report["figures"],
        "left_at_deadline": left,
        "red": float(len(red)),
        "load_before": report["load_before"],
    }
    print(f"seed {seed}, {way}: {json.dumps(figures)}")
    longest = ", ".join(f"{one['sent']} {one['seconds']:.0f} s ({one['run']})" for one in report["people"][:8])
    print(f"seed {seed}, {way}, sent at, waited longest: {longest}", flush=True)
    if red:
        print(f"seed {seed}, {way}, red: {'; '.join(red)}", file=sys.stderr)
    return figures


def _table(found: dict[str, list[dict[str, float]]], waits: dict[str, list[float]]) -> None:
    """Medians over the seeds, with the lowest and the highest, and the ratio of the medians to that of `static`."""
    print("\n| | " + " | ".join(found) + " |\n|---|" + "---|" * len(found))
    for name, shown, unit in _SHOWN:
        scale = 60 if unit == "min" else 1
        of_static = [figures[name] / scale for figures in found.get("static", [])]
        cells = []
        for figures in found.values():
            if not figures:
                cells.append("not played")
                continue
            values = [one[name] / scale for one in figures]
            value, base = median(values), median(of_static) if of_static else 0.0
            spread = f", {min(values):.1f} to {max(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{value:.1f} {unit}".strip() + spread + (f" ({value / base:.2f})" if base else ""))
        print(f"| {shown} | " + " | ".join(cells) + " |")
    for share in (0.95, 0.99, 1.0):
        cells = [f"{quantile(seconds, share):.1f} s of {len(seconds)}" for seconds in waits.values()]
        print(f"| people of all seeds, p{share * 100:.0f} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
