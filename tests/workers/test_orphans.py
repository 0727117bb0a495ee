"""A process of a lane does not outlive a supervisor that was killed before it could ask who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

MINIMAL = ROOT / "examples" / "minimal"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere an orphan lives on")
@pytest.mark.parametrize("module", ["child", "spare"])
def test_a_process_whose_supervisor_ended_while_it_started_ends_too(module: str, tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    more = ["--board", str(tmp_path / "none")] if module == "child" else ["--channel", "0"]
    command = [sys.executable, "-m", f"fleet.workers.{module}", "--app", str(MINIMAL), *more]
    orphan = subprocess.run([*command, "--parent", str(gone.pid), "lane"], timeout=60, capture_output=True, check=False)
    assert orphan.returncode == -signal.SIGKILL, orphan.stderr
    ours = subprocess.run(
        [*command, "--parent", str(os.getpid()), "lane"], timeout=60, capture_output=True, check=False
    )
    assert ours.returncode != -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere an orphan lives on")
@pytest.mark.parametrize(
    "command",
    [["fleet", "--app", str(MINIMAL), "work", "greetings"], ["fleet", "--app", str(MINIMAL), "beat"]]
    + [[f"books.sandbox.{server}"] for server in ("bank", "model", "gateway")],
    ids=lambda command: command[-1],
)
def test_a_process_that_was_to_end_with_its_starter_ends_though_he_ended_first(command: list[str]) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    told = {**os.environ, "FLEET_PARENT": str(gone.pid), "FLEET_REDIS_URL": "redis://127.0.0.1:1/0"}
    orphan = subprocess.run(
        [sys.executable, "-m", *command], timeout=60, capture_output=True, check=False, env=told, cwd=ROOT
    )
    assert orphan.returncode == -signal.SIGTERM, orphan.stderr
