"""The versions of Dramatiq and redis-py that the tests run on are those that pyproject.toml and the locks speak of."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import dramatiq
import pytest
import redis
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LIBRARIES = ("dramatiq", "redis")


def pinned(lock: str) -> dict[str, Version]:
    """The versions of both that a hashed requirements file names."""
    lines = re.findall(r"^(dramatiq|redis)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE)
    return {name: Version(version) for name, version in lines}


def declared() -> dict[str, Requirement]:
    """What pyproject.toml asks for of both."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {found.name: found for found in map(Requirement, project["dependencies"]) if found.name in LIBRARIES}


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_lowest_versions_that_are_tested_are_the_lower_bounds(library: str) -> None:
    (bound,) = [Version(one.version) for one in declared()[library].specifier if one.operator == ">="]
    assert pinned("requirements-lowest.txt")[library] == bound


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_pinned_version_is_allowed_and_the_same_in_both_locks(library: str) -> None:
    version = pinned("requirements.txt")[library]
    assert version == pinned("requirements-dev.txt")[library]
    assert declared()[library].specifier.contains(version)


@pytest.mark.parametrize(("library", "part"), [("dramatiq", 1), ("redis", 0)])
def test_a_version_that_nobody_tested_is_not_installed(library: str, part: int) -> None:
    release = list(pinned("requirements.txt")[library].release[: part + 1])
    release[part] += 1
    assert not declared()[library].specifier.contains(".".join(map(str, release)))


def test_this_run_and_its_child_processes_use_the_versions_of_one_lock() -> None:
    lock = "requirements-lowest.txt" if any(Path(entry).name == "lowest" for entry in sys.path) else "requirements.txt"
    assert {"dramatiq": Version(dramatiq.__version__), "redis": Version(redis.__version__)} == pinned(lock)
    script = "import dramatiq, redis; print(dramatiq.__version__, redis.__version__)"
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert child.stdout.split() == [dramatiq.__version__, redis.__version__]
