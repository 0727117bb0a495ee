"""The night's report turns red when what it watches is broken: one guard taken out at a time, in a copy of the tree.

Each plays a whole night, so they run with `make soak-tests`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
ROOMS = ("fleet", "beat", "middleware", "config", "books", "actors", "janitors")
SECONDS = 120


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    broken = re.sub(old, new, text, count=1, flags=re.DOTALL)
    assert broken != text, f"{path.name} no longer holds what this test takes out"
    path.write_text(broken)


def _drop_the_unique_key(tree: Path) -> None:
    _replace(tree / "books/migrations/versions/0001_books.py", r'\n\s*_unique\("transactions", [^\n]*', "")
    _replace(tree / "books/syncing.py", r"    given = statement\.excluded.*?(?=    # xmax)", "")


def _let_everybody_lead(tree: Path) -> None:
    _replace(tree / "beat/acquire.lua", r', "NX", "PX"', ', "PX"')


def _strand_what_a_dead_worker_held(tree: Path) -> None:
    _replace(tree / "fleet/broker/lua/reap.lua", r'redis\.call\("LPUSH", list, id\)', "local stranded = id")


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("take_out", "claims"),
    [
        (_drop_the_unique_key, {"transactions stored twice"}),
        (_let_everybody_lead, {"replicas that fired between another's slots (two leaders at once)"}),
        (_strand_what_a_dead_worker_held, {"its syncs claimed anew after the kill", "messages left anywhere"}),
    ],
)
def test_the_report_is_red_when_a_guard_is_taken_out(
    take_out: Callable[[Path], None], claims: set[str], tmp_path: Path
) -> None:
    tree, written = tmp_path / "tree", tmp_path / "report.json"
    for room in ROOMS:
        shutil.copytree(ROOT / room, tree / room, ignore=shutil.ignore_patterns("__pycache__"))
    take_out(tree)
    played = subprocess.run(
        [
            *(sys.executable, "-m", "books.night", "--seconds", str(SECONDS), "--seed", "3"),
            *("--folder", str(tmp_path / "night"), "--json", str(written)),
        ],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert played.returncode == 1, played.stdout + played.stderr
    red = {line["claim"] for line in json.loads(written.read_text())["lines"] if line["verdict"] == "red"}
    assert claims <= red
