"""Embedded servers: private to their folder, gone with whoever asked for them, their records kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import redis
from sqlalchemy import create_engine, text

from fleet import embedded
from fleet.errors import EmbeddedServerFailed
from fleet.storage.engine import psycopg_url
from tests.waiting import wait_until

SCRIPT = """
import sys, time
from pathlib import Path
from fleet import embedded
with embedded.servers(Path(sys.argv[1])) as urls:
    (Path(sys.argv[1]) / "up").touch()
    time.sleep(600)
"""


def query(url: str, statement: str) -> object:
    engine = create_engine(psycopg_url(url), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        answer = connection.execute(text(statement))
        value = answer.scalar() if answer.returns_rows else None
    engine.dispose()
    return value


def running_in(folder: Path) -> list[psutil.Process]:
    """The processes whose command line names this folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd", "status"]):
        words = " ".join([*(process.info["cmdline"] or []), process.info["cwd"] or ""])
        if str(folder) in words and process.info["status"] != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
            found.append(process)
    return found


def test_servers_die_with_the_process_that_was_killed_and_start_again_with_what_they_held(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    asker = subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder)])
    wait_until((folder / "up").exists, 60)
    urls = embedded.Urls(**json.loads((folder / "servers.json").read_text()))
    query(urls.database_url, "CREATE TABLE kept AS SELECT 7 AS number")
    with redis.Redis.from_url(urls.redis_url) as client:
        client.set("kept", "seven")
        client.execute_command("WAITAOF", 1, 0, 5000)
    assert running_in(folder)
    os.kill(asker.pid, signal.SIGKILL)
    asker.wait()
    wait_until(lambda: not running_in(folder), 30)

    with embedded.servers(folder) as again, embedded.servers(tmp_path / "other") as other:
        assert query(again.database_url, "SELECT number FROM kept") == 7
        with redis.Redis.from_url(again.redis_url) as client, redis.Redis.from_url(other.redis_url) as stranger:
            assert client.get("kept") == b"seven"
            assert stranger.get("kept") is None
            assert client.config_get("appendonly") == {"appendonly": "yes"}
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert query(other.database_url, "SELECT to_regclass('kept')") is None
    assert not running_in(tmp_path)


def test_only_what_is_wanted_is_started(tmp_path: Path) -> None:
    with embedded.servers(tmp_path, embedded.Wanted(postgres=False)) as urls:
        assert urls.database_url == ""
        assert not (tmp_path / "postgres").exists()
        with redis.Redis.from_url(urls.redis_url) as client:
            assert client.ping()
    with embedded.servers(tmp_path / "none", embedded.Wanted(False, False)) as urls:
        assert urls == embedded.Urls("", "")
    assert not (tmp_path / "none").exists()


def test_a_folder_may_have_a_name_that_means_another_in_a_url(tmp_path: Path) -> None:
    with embedded.servers(tmp_path / "c++%20", embedded.Wanted(valkey=False)) as urls:
        assert query(urls.database_url, "SELECT 1") == 1


def test_servers_that_cannot_start_say_what_they_wrote(tmp_path: Path) -> None:
    (tmp_path / "valkey").write_text("a file where a folder should be")
    with (
        pytest.raises(EmbeddedServerFailed, match=r"(?s)servers\.log.*valkey"),
        embedded.servers(tmp_path, embedded.Wanted(postgres=False)),
    ):
        pass
