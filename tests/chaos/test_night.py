"""One whole night, played by the command that users run, and judged by its own report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SECONDS = 90


@pytest.mark.alone
@pytest.mark.timeout(400)
def test_a_whole_night_loses_doubles_and_leaves_nothing(tmp_path: Path) -> None:
    written = tmp_path / "report.json"
    played = subprocess.run(
        [
            *(sys.executable, "-m", "books.night", "--seconds", str(SECONDS), "--seed", "5"),
            *("--folder", str(tmp_path / "night"), "--json", str(written)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert played.returncode == 0, played.stdout + played.stderr
    report = json.loads(written.read_text())
    verdicts = {line["claim"]: line["verdict"] for line in report["lines"]}
    assert verdicts["connected accounts synced"] == "ok"
    assert verdicts["worker killed while it held one of each"] == "ok"
    assert verdicts["leaders one after another, one killed on the way"] == "ok"
    assert "red" not in verdicts.values()
