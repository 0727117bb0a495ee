"""The smallest application: under forty lines, and a whole fleet that runs it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
from sqlalchemy import make_url

from fleet import embedded
from tests.waiting import wait_until

MINIMAL = Path(__file__).parents[2] / "examples" / "minimal"


PASSWORD = "s3cret"


def with_password(url: str) -> str:
    """The URL with a password, which a server that trusts its callers does not ask for."""
    given = make_url(url)
    return (given if given.password else given.set(password=PASSWORD)).render_as_string(hide_password=False)


def test_it_is_under_forty_lines_in_all() -> None:
    assert sum(len(path.read_text().splitlines()) for path in MINIMAL.rglob("*.py")) < 40


def test_the_fleet_comes_up_fires_runs_and_goes_down_whole(
    servers: embedded.Urls, database_url: str, namespace: str, tmp_path: Path
) -> None:
    root = shutil.copytree(MINIMAL, tmp_path / "minimal", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {
        **os.environ,
        "FLEET_REDIS_URL": servers.redis_url,
        "FLEET_DATABASE_URL": with_password(database_url),
        "FLEET_NAMESPACE": namespace,
    }
    fleet = subprocess.Popen(
        [sys.executable, "-m", "fleet", "--app", str(root), "up", "--folder", str(tmp_path / "run")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    log = tmp_path / "run" / "logs" / "lane-greetings.log"
    try:
        wait_until(lambda: log.exists() and log.read_text().count("Good evening, night.") >= 2, 30)
        # A supervisor, its worker, its spare and a beat.
        family = wait_until(lambda: len(found := psutil.Process(fleet.pid).children(recursive=True)) == 4 and found, 10)
    finally:
        fleet.send_signal(signal.SIGINT)
        said, _ = fleet.communicate(timeout=60)
    assert fleet.returncode == 0, said
    assert "Draining" in said and "ended by itself" not in said
    assert ":***@" in said and PASSWORD not in said
    assert not [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
