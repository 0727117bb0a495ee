"""Small applications written into the test's own folder, and the command line as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MINIMAL = Path(__file__).parents[2] / "examples" / "minimal"

HEAD = """
from datetime import timedelta
import fleet
from fleet import Budget, Entry, Lane, Retry, queue
SECOND = timedelta(seconds=1)
BUDGET = Budget(SECOND, 2 * SECOND, because="nothing here waits for anybody else")
RETRY = Retry(attempts=3, first=SECOND, longest=SECOND)
def lane(name, *queues, **more):
    return Lane(name, queues, waits_for="nobody", processes=1, threads=1, budget=BUDGET, retry=RETRY, **more)
def entry(name, **more):
    given = {"expires": SECOND, "because": "banks have closed their day", "every": 2 * SECOND, **more}
    return Entry(name, **given)
"""

GREET = "greetings = queue('greetings')\n@greetings.actor\ndef greet(): ...\n"

Fleet = Callable[..., "subprocess.CompletedProcess[str]"]
WriteApp = Callable[..., Path]


@pytest.fixture
def write_app(tmp_path: Path) -> WriteApp:
    """Write an application with one actor `greet` on queue `greetings`; lanes and schedule as source."""

    def write(lanes: str = "[lane('main', 'greetings')]", schedule: str = "[]", actors: str = "") -> Path:
        root = tmp_path / "application"
        files = {
            "actors/__init__.py": "",
            "actors/greetings.py": f"{HEAD}{GREET}{actors}",
            "config/__init__.py": "",
            "config/lanes.py": f"{HEAD}\nLANES = {lanes}\n",
            "config/schedule.py": f"{HEAD}\nSCHEDULE = {schedule}\n",
        }
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return root

    return write


@pytest.fixture
def fleet_process(tmp_path: Path) -> Fleet:
    """Run `python -m fleet --app ROOT …` in an environment without settings, but for those given by name."""

    def run(root: Path, *command: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "fleet", "--app", str(root), *command],
            cwd=tmp_path,
            env=_environment(settings),
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


@pytest.fixture(scope="session")
def forks() -> Iterator[Callable[[dict[str, object]], int]]:
    """Ask the session's process of tests/fleet/commands.py; it is started anew if a command was given up."""
    command = [sys.executable, str(Path(__file__).with_name("commands.py"))]
    process: subprocess.Popen[str] | None = None

    def ask(asked: dict[str, object]) -> int:
        nonlocal process
        if process is None:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(asked) + "\n")
            return int(process.stdout.readline())
        except BaseException:  # the next answer would be this command's
            end()
            raise

    def end() -> None:
        nonlocal process
        if process is not None:
            with process:
                process.kill()
            process = None

    yield ask
    end()


@pytest.fixture
def fleet(tmp_path: Path, forks: Callable[[dict[str, object]], int]) -> Fleet:
    """As `fleet_process`, in a fork of one process that has the command line imported."""

    def run(root: Path, *command: str, **settings: str) -> subprocess.CompletedProcess[str]:
        said = [tmp_path / f".fleet-{name}" for name in ("stdout", "stderr")]
        words = ["--app", str(root), *command]
        asked = {"words": words, "environment": _environment(settings), "cwd": str(tmp_path)}
        code = forks({**asked, "stdout": str(said[0]), "stderr": str(said[1])})
        return subprocess.CompletedProcess(words, code, *(path.read_text() for path in said))

    return run


def _environment(given: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FLEET_", "BOOKS_"))}
    return {**kept, **given}
