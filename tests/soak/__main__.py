"""`python -m tests.soak [--hours H | --nights N] [--seed S]`: exits 1 if anything broke.

That is an invariant, a bound of growth, or a kind of fault that was dealt again and again and never made. What a longer
soak would say is `not decided`, and no failure.

Servers, files and logs live in a folder, emptied first. Wants a machine with two free cores: what a slow one does to a
night (slots that expire, syncs that are late) is said and not blamed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path


def main() -> int:
    """Play, print, and answer with the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--hours", type=float, default=1.0, help="real hours; the last night is played to its end (1)")
    parser.add_argument("--nights", type=int, help="so many nights instead")
    parser.add_argument("--night-seconds", type=float, default=120, help="real seconds for the eight hours (120)")
    parser.add_argument("--seed", type=int, default=1, help="what nights and faults are drawn from (1)")
    parser.add_argument("--pause", type=float, default=4.0, help="seconds between two faults, in the mean (4)")
    parser.add_argument("--folder", type=Path, default=Path(".soak"), help="where everything lives (.soak)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found to this file, too")
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    from tests.soak.house import House

    house = House(folder / "house")
    sys.path.insert(0, str(house.root))  # before anything of the application's is imported
    from rich.console import Console

    from books.night.plan import Plan
    from tests.soak import told
    from tests.soak.processes import stage
    from tests.soak.run import Soak

    console = Console(width=None if sys.stdout.isatty() else 160, emoji=False)
    with stage(Plan(asked.night_seconds, asked.seed, folder), house) as on:
        outcome = Soak(on, console, hours=asked.hours, nights=asked.nights, pause=asked.pause).play()
    told.show(outcome, asked.seed, console)
    if asked.json is not None:
        told.write(outcome, asked.seed, asked.json)
    return 1 if outcome.red else 0


if __name__ == "__main__":
    sys.exit(main())
