"""What Hypothesis draws is the same in every run, and another by each seed, which can be given again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.architecture.test_makefile import runs
from tests.conftest import ROOT

DRAWS = """
from hypothesis import given
from hypothesis import strategies as st

@given(st.integers())
def test_it(drawn):
    print("drew", drawn)
"""


def played(folder: Path, seed: int | None) -> str:
    """What pytest says of a test that prints what it is given."""
    (folder / "test_draws.py").write_text(DRAWS)
    outside = {name: value for name, value in os.environ.items() if name not in ("TEST_SEED", "PYTEST_ADDOPTS")}
    outside |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    outside |= {} if seed is None else {"TEST_SEED": str(seed)}
    command = [sys.executable, "-m", "pytest", "-s", "-p", "tests.conftest", "test_draws.py"]
    return subprocess.run(command, cwd=folder, env=outside, capture_output=True, text=True, check=True).stdout


def drawn(said: str) -> list[str]:
    return [line for line in said.splitlines() if "drew" in line]


def test_a_seed_draws_anew_and_stands_in_the_header(tmp_path: Path) -> None:
    by_seed, always = played(tmp_path, 7), played(tmp_path, None)
    assert "TEST_SEED=7" in by_seed and "TEST_SEED" not in always
    assert len(drawn(by_seed)) > 50 and drawn(by_seed) != drawn(always)
    assert drawn(by_seed) == drawn(played(tmp_path, 7))


def test_the_soak_tests_fuzz_too() -> None:
    assert ["tests/fuzz"] in runs("soak-tests")
