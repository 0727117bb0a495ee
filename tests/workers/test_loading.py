"""A lane whose application cannot be imported: it stays, says so, and serves once the code is mended."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.middleware.ingest import Ingest
from tests.waiting import wait_until
from tests.workers.conftest import APP, Running

Supervise = Callable[..., Running]


@pytest.fixture
def port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """The lane's application, with one more module of actors, which cannot be imported and counts its imports."""
    root = shutil.copytree(APP, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    count = f"with open({str(tmp_path / 'imports')!r}, 'a') as f:\n    f.write('x')\n"
    (root / "actors" / "payroll.py").write_text(f"{count}import a_package_nobody_installed\n")
    return root


def page(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def imports(app: Path) -> int:
    count = app.parent / "imports"
    return len(count.read_text()) if count.exists() else 0


def test_a_lane_whose_actors_cannot_be_imported_says_why_once_and_serves_when_they_are_mended(
    supervise: Supervise, app: Path, port: int
) -> None:
    lane = supervise(app, FLEET_METRICS_PORT=str(port))
    broken = app / "actors" / "payroll.py"
    wait_until(lambda: imports(app) >= 2, 20)
    (said,) = lane.logged("lane_cannot_load")
    assert json.loads(said) | {
        "level": "error",
        "module": "actors.payroll",
        "error": "ModuleNotFoundError: No module named 'a_package_nobody_installed'",
        "at": f"{broken}:3",
    } == json.loads(said)
    assert page(port, "healthz") == (200, "ok\n")
    status, why = page(port, "readyz")
    assert status == 503
    assert "actors.payroll cannot be imported" in why and "a_package_nobody_installed" in why and f"{broken}:3" in why
    assert "Traceback" not in lane.log.read_text()
    broken.unlink()
    lane.ready(1)
    assert len(lane.logged("lane_cannot_load")) == 1, "the second try found the same, and is over"
    assert lane.process.poll() is None, "it is the same process"
    lane.gate.touch()
    lane.send("after")
    wait_until(lambda: lane.events("end"), 30)
    wait_until(lambda: page(port, "readyz") == (200, "ok\n"), 30)


def test_another_cause_after_half_a_repair_is_said_too(supervise: Supervise, app: Path) -> None:
    lane = supervise(app)
    wait_until(lambda: lane.logged("lane_cannot_load"), 20)
    (app / "actors" / "payroll.py").write_text("def pay(:\n")
    lane.process.send_signal(signal.SIGHUP)
    wait_until(lambda: len(lane.logged("lane_cannot_load")) == 2, 20)
    second = lane.logged("lane_cannot_load")[1]
    assert "SyntaxError" in second and "payroll.py:1" in second


def test_a_try_that_ends_without_an_answer_is_a_cause_like_others(supervise: Supervise, app: Path) -> None:
    lane = supervise(app)
    wait_until(lambda: lane.logged("lane_cannot_load"), 20)
    (app / "actors" / "payroll.py").write_text("import os\nos._exit(7)\n")
    lane.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "the process that tried ended with code 7" in lane.log.read_text(), 20)
    assert lane.process.poll() is None


def test_a_repair_that_leaves_an_invalid_declaration_ends_the_lane_with_its_code(
    supervise: Supervise, app: Path
) -> None:
    lane = supervise(app)
    wait_until(lambda: lane.logged("lane_cannot_load"), 20)
    (app / "actors" / "payroll.py").write_text("from fleet import queue\nqueue('jobs').actor(budget=None)\n")
    lane.process.send_signal(signal.SIGHUP)
    assert lane.process.wait(20) == 2
    assert lane.log.read_text().splitlines()[-1].startswith("fleet: actor(budget=None)")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_lane_that_waits_for_its_code_ends_at_a_signal(supervise: Supervise, app: Path, number: int) -> None:
    lane = supervise(app)
    wait_until(lambda: lane.logged("lane_cannot_load"), 20)
    lane.process.send_signal(number)
    assert lane.process.wait(10) == 0


@pytest.mark.parametrize(
    ("source", "module", "error", "line"),
    [
        ("\nimport fractions, nowhere\n", "actors.payroll", "ModuleNotFoundError", "actors/payroll.py:2"),
        ("from fleet import no_such_name\n", "actors.payroll", "ImportError", "actors/payroll.py:1"),
        ("x = (\n", "actors.payroll", "SyntaxError", "actors/payroll.py:1"),
        ("import json\njson.loads('{')\n", "actors.payroll", "JSONDecodeError", "actors/payroll.py:2"),
        ("import sys\nprint('on my way')\nsys.exit(3)\n", "actors.payroll", "SystemExit: 3", "actors/payroll.py:3"),
        ("import config.broken\n", "config.broken", "ZeroDivisionError", "config/ratios.py:2"),
    ],
)
def test_the_cause_names_the_module_and_the_line_of_the_application(
    app: Path, source: str, module: str, error: str, line: str
) -> None:
    (app / "config" / "ratios.py").write_text("def ratio(n):\n    return 1 / n\n")
    (app / "config" / "broken.py").write_text("from config.ratios import ratio\n\nratio(0)\n")
    (app / "actors" / "payroll.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "fleet.workers.loading", "--app", str(app)], capture_output=True, timeout=30
    )
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["module"] == module
    assert error in found["error"]
    assert found["at"].endswith(line)


def test_a_lane_that_cannot_load_is_an_issue_of_its_own_at_sentry(supervise: Supervise, app: Path) -> None:
    ingest = Ingest()
    try:
        supervise(app, FLEET_SENTRY_DSN=ingest.dsn)
        wait_until(ingest.events, 20)
        (event,) = ingest.events()
        assert event["fingerprint"] == ["lane_cannot_load", "jobs"]
        assert event["extra"]["module"] == "actors.payroll"
    finally:
        ingest.close()
