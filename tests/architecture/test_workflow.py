"""The GitHub workflow without GitHub: it fits the schema, may only read, and runs what the README says to run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
PATH = ROOT / ".github/workflows/ci.yml"
TEXT = PATH.read_text()
WORKFLOW: dict[str, Any] = yaml.safe_load(TEXT)
SKIPPED_WITHOUT = {
    name
    for path in (ROOT / "tests").rglob("*.py")
    for name in re.findall(r'shutil\.which\("([\w-]+)"', path.read_text())
}
BROWSERS = {"chromium", "chromium-browser", "google-chrome"}


def commands(job: str) -> list[str]:
    return [step["run"] for step in WORKFLOW["jobs"][job]["steps"] if "run" in step]


def test_it_fits_the_schema_of_workflows() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(PATH)]
    done = subprocess.run(check, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_may_read_the_tree_and_nothing_else() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert not [job for job in WORKFLOW["jobs"].values() if "permissions" in job]
    assert "secrets." not in TEXT and "pull_request_target" not in TEXT


def test_every_action_is_pinned_to_a_commit_and_says_its_version() -> None:
    used = re.findall(r"uses: (.*)", TEXT)
    assert used
    for action in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+(\.\d+)*", action), action


def test_it_runs_make_test_on_every_python_that_is_supported() -> None:
    pythons = WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"]
    supported = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    lowest, beyond = map(int, re.fullmatch(r">=3\.(\d+),<3\.(\d+)", supported).groups())  # type: ignore[union-attr]
    assert pythons == [f"3.{minor}" for minor in range(lowest, beyond)]
    assert any(command.startswith("make test") for command in commands("test"))


def test_it_plays_the_night() -> None:
    assert "make night PYTHON=python" in commands("test")


def test_it_fails_without_the_programs_that_tests_would_be_skipped_for(tmp_path: Path) -> None:
    (line,) = [command for command in commands("test") if "command -v" in command]
    asked = set(re.findall(r"in ([\w ]+);", line)[0].split())
    assert asked == SKIPPED_WITHOUT - BROWSERS - {"hadolint", "zizmor"}
    for name in asked:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)

    def status() -> int:
        done = subprocess.run(["/bin/bash", "-e", "-c", line], env={"PATH": str(tmp_path)}, stdout=subprocess.DEVNULL)
        return done.returncode

    assert status() == 0
    for name in asked:
        (tmp_path / name).rename(tmp_path / "away")
        assert status() == 1, name
        (tmp_path / "away").rename(tmp_path / name)


def test_the_readme_names_the_programs_that_tests_are_skipped_without() -> None:
    (row,) = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `make test` |")]
    shown = {"chromium" if name in BROWSERS else name for name in SKIPPED_WITHOUT}
    assert len(shown) > 6
    assert not [name for name in sorted(shown) if not re.search(rf"\b{name}\b", row, re.IGNORECASE)]


def test_it_brings_the_compose_file_up_until_healthy_and_down_by_its_drains() -> None:
    lines = commands("compose")
    up = next(place for place, line in enumerate(lines) if re.search(r"docker compose .*up --wait", line))
    down = next(place for place, line in enumerate(lines) if re.search(r"docker compose .*down$", line))
    assert up < down and "--timeout" not in lines[down], "a time-out of its own would overrule the stop graces"


@pytest.mark.skipif(not shutil.which("zizmor"), reason="zizmor is not installed: the workflow was not audited by it")
def test_zizmor_finds_nothing() -> None:
    done = subprocess.run(["zizmor", "--offline", str(PATH)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
