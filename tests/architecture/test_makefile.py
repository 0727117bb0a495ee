"""`make test` as make would run it: every test once, the long ones never, what measures time beside no other."""

from __future__ import annotations

import os
import shlex
import subprocess
import tomllib
from collections import defaultdict
from itertools import pairwise, product

import pytest

from tests.conftest import ROOT

ADDOPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["addopts"]


def runs(target: str) -> list[list[str]]:
    """The words that a target gives to pytest, a run."""
    outside = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    said = subprocess.run(["make", "-n", target], cwd=ROOT, env=outside, capture_output=True, text=True, check=True)
    lines = [line.partition(" -m pytest")[2] for line in said.stdout.splitlines() if " -m pytest" in line]
    return [shlex.split(line) for line in lines]


def takes(run: list[str], *, soak: bool, alone: bool) -> bool:
    """Whether a run takes a test with these marks; of two `-m` the last holds, and pyproject.toml's comes first."""
    words = [*shlex.split(ADDOPTS), *run]
    wanted = [word for option, word in pairwise(words) if option == "-m"][-1]
    return bool(eval(wanted, {}, {"soak": soak, "alone": alone}))


@pytest.mark.parametrize("target", ["test", "test-lowest"])
def test_each_test_is_run_once_and_what_measures_time_has_the_machine_to_itself(target: str) -> None:
    by_paths = defaultdict(list)
    for run in runs(target):
        by_paths[tuple(word for word in run if word.startswith("tests/"))].append(run)
    assert len(by_paths) == (2 if target == "test" else 1), "the latest versions, and the lowest"
    for paths, found in by_paths.items():
        for soak, alone in product((False, True), repeat=2):
            taking = [run for run in found if takes(run, soak=soak, alone=alone)]
            assert len(taking) == (0 if soak else 1), (paths, soak, alone)
            assert not alone or not any("-n" in run for run in taking), paths
