"""The processes of the test's application, each with settings of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.environment import child_path

APP, ROOT = Path(__file__).parent / "app", Path(__file__).parents[2]
NIGHT = datetime(2026, 11, 30, 2, tzinfo=UTC)


@dataclass
class Processes:
    """What was started, by its words, and where each writes."""

    folder: Path
    settings: dict[str, str]
    started: list[tuple[subprocess.Popen[bytes], Path]] = field(default_factory=list)

    def start(self, *words: str, app: Path = APP, **settings: str) -> subprocess.Popen[bytes]:
        """`fleet WORDS` with these settings, and nothing of this process's own."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FLEET_", "BOOKS_"))}
        environment = {**kept, "PYTHONPATH": child_path(ROOT), **self.settings, **settings}
        log = self.folder / f"{len(self.started)}-{'-'.join(re.findall('[a-z]+', ' '.join(words)))}.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "fleet", "--app", str(app), *words],
                env=environment, stdout=sink, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=ROOT,
            )  # fmt: skip
        self.started.append((process, log))
        return process

    def said(self) -> str:
        """All that all of them wrote."""
        return "".join(f"--- {log.name}\n{log.read_text(errors='replace')}" for _, log in self.started)

    def stop(self) -> None:
        for process, _ in self.started:
            process.terminate()
        for process, _ in self.started:
            process.wait(40)


@contextmanager
def processes(folder: Path, **settings: str) -> Iterator[Processes]:
    """Ends what was started, however the test ends."""
    made = Processes(folder, settings)
    try:
        yield made
    finally:
        made.stop()


def fast_night(rate: float) -> dict[str, str]:
    """Settings by which the night is at two o'clock now, and so many times as fast."""
    anchor = datetime.now(UTC)
    return {
        "FLEET_CLOCK_ORIGIN": NIGHT.isoformat(),
        "FLEET_CLOCK_ANCHOR": anchor.isoformat(),
        "FLEET_CLOCK_RATE": str(rate),
    }
