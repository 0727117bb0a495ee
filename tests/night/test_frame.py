"""Where a night can be played, and the fleet on the real clock: the commands behind `make night` and `make up`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sqlalchemy import create_engine, text

from config.lanes import LANES
from fleet.storage.engine import psycopg_url

ROOT = Path(__file__).parent.parent.parent
COMMAND = (sys.executable, "-m", "books.night")


def _night(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_night_refuses_a_database_that_already_holds_accounts(
    tmp_path: Path, redis_url: str, migrated_url: str
) -> None:
    engine = create_engine(psycopg_url(migrated_url))
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO bank_accounts (external_id, name, currency, customer, status) "
                "VALUES ('somebody', 'somebody', 'EUR', 'somebody', 'idle')"
            )
        )
    engine.dispose()
    refused = _night("--folder", str(tmp_path / "n"), FLEET_REDIS_URL=redis_url, FLEET_DATABASE_URL=migrated_url)
    assert refused.returncode == 2
    assert refused.stderr.startswith("night: The database of FLEET_DATABASE_URL holds accounts already")
    assert "Traceback" not in refused.stderr


def test_a_server_that_cannot_be_reached_is_one_sentence(tmp_path: Path, redis_url: str) -> None:
    unreachable = "postgresql://somebody:hidden@127.0.0.1:1/books"
    refused = _night("--folder", str(tmp_path / "n"), FLEET_REDIS_URL=redis_url, FLEET_DATABASE_URL=unreachable)
    assert refused.returncode == 2
    assert re.fullmatch(r"night: PostgreSQL at .* does not answer .*\n", refused.stderr)
    assert "hidden" not in refused.stderr + refused.stdout


@pytest.fixture
def staying(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, "--real-clock", "--folder", str(tmp_path / "up")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield process
    process.kill()
    process.wait()


@pytest.mark.alone
def test_make_up_says_where_everything_listens_and_ends_whole_on_ctrl_c(staying: subprocess.Popen[str]) -> None:
    assert staying.stdout is not None
    said, metrics, ends = "", set[str](), time.monotonic() + 90
    while len(metrics) < len(LANES) + 2:
        assert time.monotonic() < ends, said
        said += staying.stdout.readline()
        metrics = set(re.findall(r"metrics +(http://127\.0\.0\.1:\d+/metrics)", said))
    for name in ("Redis", "PostgreSQL", "bank", "model", "gateway", "mail", "logs"):
        assert re.search(rf"^{name} +\S+", said, re.MULTILINE), said
    for address in metrics:
        with urllib.request.urlopen(address, timeout=10) as answer:
            assert answer.status == 200
    children = psutil.Process(staying.pid).children(recursive=True)
    assert len(children) > len(LANES) * 2
    staying.send_signal(signal.SIGINT)
    assert staying.wait(90) == 0
    gone, alive = psutil.wait_procs(children, timeout=10)
    assert not alive, [process.cmdline() for process in alive]
    assert gone
