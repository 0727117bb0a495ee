"""`python -m tests.benchmarks.bank_window static balancer`: the sync alone, of nights of `night_four_ways`, in pairs.

A whole night takes seven minutes and tells of the sync one number, which swings by a fifth with the machine. This plays
each night until 01:45 and kills it there, after two minutes and a half. The second pair is played in the other order,
and so on, so that a machine that grows slower with time favours neither.

Told of each: how many accounts were synced by then, and the night minutes from 01:00 until a half, 95 % and all of
those had it. Not guaranteed: anything of the rest of the night. On failure of a night (its beat never came up, or it
ended early) it raises, with what the night said.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median

import psutil
import psycopg

from books.night.plan import at
from fleet.clock import Night
from tests.benchmarks.night_four_ways import BROKEN, WAYS, command, make

_SYNC, _ENDS = at(1, 0), at(1, 45)
_STARTS_WITHIN = 60.0
_QUANTILES = {"half": 0.5, "95 %": 0.95, "all": 1.0}


def main() -> None:
    """Play, and print each night and the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bank_window", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("nights", nargs=2, choices=[*WAYS, *BROKEN], metavar="NIGHT", help="a way, a fault, or both")
    parser.add_argument("--seconds", type=float, default=400, help="real seconds a whole night would take (400)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="a pair of nights each (1)")
    asked = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {night: [] for night in asked.nights}
    for number, seed in enumerate(asked.seeds):
        for night in asked.nights[:: -1 if number % 2 else 1]:
            figures = play(night, asked.seconds, seed)
            print(f"seed {seed}, {night}: " + ", ".join(f"{name} {value:.1f}" for name, value in figures.items()))
            sys.stdout.flush()
            found[night].append(figures)
    _table(found)


def play(way: str, seconds: float, seed: int) -> dict[str, float]:
    """One night until 01:45: accounts synced by then, minutes from 01:00 until shares of them were, load before."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bank-window-", ignore_cleanup_errors=True) as folder:
        house = Path(folder) / "house"
        make(house, way)
        with _begun(command(house, way, seconds, seed), house) as night:
            settings = _settings_of_its_beat(night, house)
            clock = Night(
                origin=datetime.fromisoformat(settings["FLEET_CLOCK_ORIGIN"]),
                anchor=datetime.fromisoformat(settings["FLEET_CLOCK_ANCHOR"]),
                rate=float(settings["FLEET_CLOCK_RATE"]),
            )
            ends = clock.anchor + (_ENDS - clock.origin) / clock.rate
            time.sleep(max(0.0, (ends - datetime.now(ends.tzinfo)).total_seconds()))
            if night.poll() is not None:
                said = (house / "said").read_text()[-2000:]
                raise RuntimeError(f"The night {way} of seed {seed} ended with {night.returncode} before 01:45: {said}")
            took = _minutes(settings["FLEET_DATABASE_URL"], clock.origin)
    shares = {name: took[int(share * (len(took) - 1))] for name, share in _QUANTILES.items()}
    return {"accounts": float(len(took)), **shares, "load": load}


@contextmanager
def _begun(command: list[str], house: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The night's process; it and all that it started are killed behind the block."""
    with (house / "said").open("wb") as said:
        night = subprocess.Popen(
            command, cwd=house, env={**os.environ, "PYTHONPATH": str(house)}, stdout=said, stderr=subprocess.STDOUT
        )
    try:
        yield night
    finally:
        left = [process for process in psutil.process_iter(["cmdline"]) if str(house) in _words(process)]
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, 10)
        night.wait()


def _words(process: psutil.Process) -> str:
    return " ".join(process.info["cmdline"] or ())


def _settings_of_its_beat(night: subprocess.Popen[bytes], house: Path) -> dict[str, str]:
    until = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < until and night.poll() is None:
        for process in psutil.process_iter(["cmdline"]):
            if str(house) in _words(process) and _words(process).endswith(" beat"):
                return process.environ()
        time.sleep(0.2)
    raise RuntimeError(f"No beat of the night came up; it said: {(house / 'said').read_text()[-2000:]}")


def _minutes(url: str, since: datetime) -> list[float]:
    """From 01:00 until each account was synced, in order."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        asked = "SELECT last_synced_at FROM bank_accounts WHERE last_synced_at >= %s ORDER BY 1"
        rows = connection.execute(asked, (since,)).fetchall()
    if not rows:
        raise RuntimeError("No account was synced by 01:45.")
    return [(synced - _SYNC) / timedelta(minutes=1) for (synced,) in rows]


def _table(found: dict[str, list[dict[str, float]]]) -> None:
    """Medians with the lowest and the highest, and the median of the pairs' ratios, second night to first."""
    first, second = found.values()
    print("\n| | " + " | ".join(found) + " | ratio of each pair |\n|---|---|---|---|")
    for name in ("accounts", *_QUANTILES):
        cells = []
        for nights in (first, second):
            values = [figures[name] for figures in nights]
            cells.append(f"{median(values):.1f}, {min(values):.1f} to {max(values):.1f}")
        ratios = [two[name] / one[name] for one, two in zip(first, second, strict=True)]
        print(f"| {name} | {cells[0]} | {cells[1]} | {median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f} |")


if __name__ == "__main__":
    main()
