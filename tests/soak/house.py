"""The bookkeeping with the soak's lane: a folder of its own, whose schedule each deploy changes.

The rooms are copied, so that a deploy is what it is elsewhere: files that change under processes which loaded them.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
_MORE = Path(__file__).parent / "rooms"
_ROOMS = ("actors", "janitors", "config", "books")
TICK = "soak_tick"
_CRONS = ("* * * * *", "*/2 * * * *", "1-59/2 * * * *")


class House:
    """An application's root at `folder`."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self._crons = itertools.cycle(_CRONS)
        for room in _ROOMS:
            shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(_MORE / "soak.py", folder / "actors")
        for name in ("lanes.py", "schedule.py"):
            own = folder / "config" / name
            own.rename(own.with_stem(f"{own.stem}_of_books"))
            shutil.copy(_MORE / name, own)
        self._broken = folder / "actors" / "broken.py"
        self.change_schedule()

    def break_code(self) -> None:
        """Lay down a module of actors that cannot be imported."""
        self._broken.write_text("import a_package_that_nobody_installed\n")

    def mend_code(self) -> None:
        self._broken.unlink(missing_ok=True)

    def change_schedule(self) -> str:
        """Write the schedule of the next release; its cron of the soak's entry."""
        cron = next(self._crons)
        path = self.root / "config" / "schedule.py"
        fresh = path.with_suffix(".new")
        fresh.write_text((_MORE / "schedule.py").read_text().replace(f'CRON = "{_CRONS[0]}"', f'CRON = "{cron}"'))
        fresh.replace(path)
        return cron
