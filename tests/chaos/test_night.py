"""One whole night, played by the command that users run, and judged by its own report, which shows no secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from books.night.world import BANK_KEY, GATEWAY_KEY, MODEL_KEY

ROOT = Path(__file__).parent.parent.parent
SECONDS = 90
DIGEST = "7a" * 32
SECRETS = {"FLEET_CONSOLE_TOKENS": f"ann operate sha256:{DIGEST}"}
MARKS = {BANK_KEY, GATEWAY_KEY, MODEL_KEY, DIGEST}  # the night gives its lanes the first three


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
        env={**os.environ, **SECRETS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert played.returncode == 0, played.stdout + played.stderr
    text = written.read_text()
    assert not {mark for mark in MARKS if mark in played.stdout + played.stderr + text}
    report = json.loads(text)
    verdicts = {line["claim"]: line["verdict"] for line in report["lines"]}
    assert verdicts["connected accounts synced"] in ("ok", "apart")  # apart: some wait for their next try, late
    assert verdicts["worker killed while it held one of each"] == "ok"
    assert verdicts["leaders one after another, one killed on the way"] == "ok"
    assert "red" not in verdicts.values()
