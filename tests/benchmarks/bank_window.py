"""`python -m tests.benchmarks.bank_window static balancer`: the bank window of nights of `night_four_ways`, in turns.

A whole night takes seven minutes and tells of the sync one number, which swings by a fifth with the machine. This plays
each night until 01:45 and kills it there, after two minutes and a half. The second round is played in the other order,
and so on, so that a machine that grows slower with time favours nobody.

Told of each: how many accounts were synced by then, the night minutes from 01:00 until a half, 95 % and all of those
had it, and how long people waited who had handed in a run by 01:40, as `books.night.figures` counts it. The people of
all seeds are pooled. Ratios are each night's to that of the first of its round. Not guaranteed: anything of the rest of
the night. On failure of a night (its beat never came up, or it ended early) it raises, with what the night said.
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

from books.night.desk import PEOPLE
from books.night.figures import people_waited, quantile, sent_by
from books.night.plan import at
from books.night.report import Waited
from fleet.clock import Night, clock
from tests.benchmarks.night_four_ways import BROKEN, WAYS, command, make

_SYNC, _PEOPLE, _ENDS = at(1, 0), at(1, 40), at(1, 45)
_STARTS_WITHIN = 60.0
_QUANTILES = {"half": 0.5, "95 %": 0.95, "all": 1.0}


def main() -> None:
    """Play, and print each night and the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bank_window", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("nights", nargs="+", choices=[*WAYS, *BROKEN], metavar="NIGHT", help="a way, a fault, or both")
    parser.add_argument("--seconds", type=float, default=400, help="real seconds a whole night would take (400)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="a round of nights each (1)")
    asked = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {night: [] for night in asked.nights}
    waits: dict[str, list[float]] = {night: [] for night in asked.nights}
    for number, seed in enumerate(asked.seeds):
        for night in asked.nights[:: -1 if number % 2 else 1]:
            figures, people = play(night, asked.seconds, seed)
            print(f"seed {seed}, {night}: " + ", ".join(f"{name} {value:.1f}" for name, value in figures.items()))
            print("  waited longest: " + ", ".join(f"{one.sent} {one.seconds:.0f} s ({one.run})" for one in people[:6]))
            sys.stdout.flush()
            found[night].append(figures)
            waits[night] += [one.seconds for one in people]
    _table(found, {night: sorted(seconds) for night, seconds in waits.items()})


def play(way: str, seconds: float, seed: int) -> tuple[dict[str, float], list[Waited]]:
    """One night until 01:45, and its people, who waited longest first.

    Of the night: accounts synced by then, minutes from 01:00 until shares of them were, load before.
    """
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bank-window-", ignore_cleanup_errors=True) as folder:
        house = Path(folder) / "house"
        make(house, way)
        with _begun(command(house, way, seconds, seed), house) as night:
            settings = _settings_of_its_beat(night, house)
            played = Night(
                origin=datetime.fromisoformat(settings["FLEET_CLOCK_ORIGIN"]),
                anchor=datetime.fromisoformat(settings["FLEET_CLOCK_ANCHOR"]),
                rate=float(settings["FLEET_CLOCK_RATE"]),
            )
            ends = played.anchor + (_ENDS - played.origin) / played.rate
            time.sleep(max(0.0, (ends - datetime.now(ends.tzinfo)).total_seconds()))
            if night.poll() is not None:
                said = (house / "said").read_text()[-2000:]
                raise RuntimeError(f"The night {way} of seed {seed} ended with {night.returncode} before 01:45: {said}")
            took = _minutes(settings["FLEET_DATABASE_URL"], played.origin)
            people = _people(house / "night", played)
    shares = {name: took[int(share * (len(took) - 1))] for name, share in _QUANTILES.items()}
    return {"accounts": float(len(took)), **shares, "load": load}, people


def _people(folder: Path, played: Night) -> list[Waited]:
    clock.set_night(played)
    sent = {key: real for key, real in sent_by(folder / PEOPLE).items() if clock.to_night(real) < _PEOPLE}
    return people_waited(folder / "world" / "model.jsonl", sent)


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


def _table(found: dict[str, list[dict[str, float]]], waits: dict[str, list[float]]) -> None:
    """Medians with the lowest and the highest, in brackets those of the ratios; then people."""
    print("\n| | " + " | ".join(found) + " |\n|---|" + "---|" * len(found))
    first, *_ = found.values()
    for name in ("accounts", *_QUANTILES):
        cells = []
        for nights in found.values():
            told = _spread([figures[name] for figures in nights], 1)
            ratios = [two[name] / one[name] for one, two in zip(first, nights, strict=True)]
            cells.append(told if nights is first else f"{told} ({_spread(ratios, 2)})")
        print(f"| {name} | " + " | ".join(cells) + " |")
    for share in (0.5, 0.95, 0.99, 1.0):
        cells = [f"{quantile(seconds, share):.1f} s of {len(seconds)}" for seconds in waits.values()]
        print(f"| people wait, p{share * 100:.0f} | " + " | ".join(cells) + " |")


def _spread(values: list[float], digits: int) -> str:
    return f"{median(values):.{digits}f}, {min(values):.{digits}f} to {max(values):.{digits}f}"


if __name__ == "__main__":
    main()
