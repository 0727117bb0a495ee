"""Marked secrets in every secret setting, provoked errors of every kind, and no mark in what anybody can read."""

from __future__ import annotations

import http.client
import re
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import psutil
import pytest
from cryptography.fernet import Fernet

from fleet.broker import FleetBroker, keys
from fleet.console import tokens
from tests.broker.conftest import OwnRedis
from tests.security.processes import ROOT, Processes, processes
from tests.waiting import wait_until

LIMIT = 90
FORM = "application/x-www-form-urlencoded"
TOKEN, TOKEN_LINE = tokens.draw("ann", "operate")
OUTSIDE = {
    "BOOKS_BANK_SECRET_ID": "marked-bank-id-7Qx",
    "BOOKS_BANK_SECRET_KEY": "marked-bank-key-7Qx",
    "BOOKS_MODEL_KEY": "sk-marked-model-7Qx",
    "BOOKS_AUTHORITY_KEY": "marked-authority-7Qx",
    "BOOKS_PAYMENTS_KEY": "marked-payments-7Qx",
    "BOOKS_SMTP_USER": "marked-smtp-user-7Qx",
    "BOOKS_SMTP_PASSWORD": "marked-smtp-7Qx",
    "FLEET_PAYLOAD_KEYS": Fernet.generate_key().decode(),
    "FLEET_CONSOLE_TOKENS": TOKEN_LINE,
    "FLEET_SENTRY_DSN": "http://markeddsn7qx@127.0.0.1:9/1",
}
REDIS, POSTGRES = "marked-r:edis@7Qx", "marked-pg-7Qx"
QUOTED = REDIS.replace(":", "%3A").replace("@", "%40")
MARKS = {*OUTSIDE.values(), REDIS, QUOTED, POSTGRES, TOKEN, TOKEN_LINE.rpartition(":")[2], "markeddsn7qx", "7Qx"}


@pytest.fixture
def server(own_redis: OwnRedis) -> OwnRedis:
    """A Redis with a user whose password is marked, and one that may nearly nothing."""
    with own_redis.client as admin:
        admin.execute_command("ACL", "SETUSER", "night", "on", f">{REDIS}", "~*", "&*", "+@all")
        admin.execute_command(
            "ACL", "SETUSER", "few", "on", f">{REDIS}", "~*", "&*", "+@connection", "+evalsha", "+time"
        )
    return own_redis


@pytest.fixture
def running(tmp_path: Path, server: OwnRedis, migrated_url: str) -> Iterator[Processes]:
    database = re.sub(r"://postgres:?@", f"://postgres:{POSTGRES}@", migrated_url)
    assert POSTGRES in database
    url = f"redis://night:{QUOTED}@127.0.0.1:{server.port}/0"
    given = {"FLEET_REDIS_URL": url, "FLEET_DATABASE_URL": database, "FLEET_NAMESPACE": "own", **OUTSIDE}
    with processes(tmp_path, FLEET_LOG_LEVEL="DEBUG", **given) as made:
        yield made


def require_unmarked(where: str, text: str) -> None:
    found = sorted(mark for mark in MARKS if mark in text)
    assert not found, f"{where} shows {found}: {text[max(0, text.index(found[0]) - 300) :][:600]}"


def command_lines(of: Processes) -> str:
    lines = []
    for process, _ in of.started:
        with suppress(psutil.Error):
            whole = psutil.Process(process.pid)
            lines += [" ".join(one.cmdline()) for one in [whole, *whole.children(recursive=True)]]
    return "\n".join(lines)


def read(url: str, cookie: str = "") -> str:
    asked = urllib.request.Request(url, headers={"Cookie": cookie} if cookie else {})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return str(answer.read().decode())


def logged_in(console: str) -> str:
    """The cookie of a session."""
    connection = http.client.HTTPConnection(urlsplit(console).netloc, timeout=20)
    connection.request("POST", "/login", urlencode({"token": TOKEN}), {"Content-Type": FORM})
    answer = connection.getresponse()
    connection.close()
    assert answer.status == 303
    return str(answer.headers["set-cookie"]).partition(";")[0]


def test_processes_that_run_show_no_secret(running: Processes) -> None:
    running.start("work", "housekeeping", app=ROOT)
    running.start("beat", app=ROOT)
    running.start("console", "--port", "0", app=ROOT)
    for event in ("worker_ready", "beat_elected", "console_started"):
        wait_until(lambda event=event: event in running.said() or _ended(running), LIMIT)
    broker = FleetBroker(url=running.settings["FLEET_REDIS_URL"], namespace="own", middleware=[])
    said = re.sub(r"\x1b\[[0-9;]*m", "", running.said())
    for address in re.findall(r"metrics=(http\S+)", said):
        require_unmarked(address, read(address))
    console = re.findall(r"url=(http\S+?/)(?:\s|$)", said)[0]
    cookie = logged_in(console)
    for page in ("", "lanes", "schedule", "beats", "budgets", "runs", "dead", "alerts", "balancer", "audit", "explain"):
        require_unmarked(page, read(console + page, cookie))
    require_unmarked("ps", command_lines(running))
    for words in (
        ["status"],
        ["doctor"],
        ["jobs"],
        ["schedule"],
        ["outbox", "list"],
        ["dead", "list"],
        ["acl", "worker"],
    ):
        running.start(*words, app=ROOT)
    for process, _ in running.started[3:]:
        process.wait(LIMIT)
    with broker.client as client:  # before the stop, which takes reports back
        kept = client.hgetall(keys.processes(broker.namespace))
    assert len(kept) >= 3, kept
    require_unmarked("what processes report", str(kept))
    running.stop()
    require_unmarked("the logs", running.said())


BROKEN = ["wrong password", "unreachable host", "few rights", "malformed"]
BROKEN += ["no database", "a password among options", "a bare @ in a password"]


@pytest.mark.parametrize("broken", BROKEN)
def test_errors_at_a_start_show_no_secret(running: Processes, server: OwnRedis, broken: str) -> None:
    here = f"127.0.0.1:{server.port}/0"
    given = {
        "wrong password": {"FLEET_REDIS_URL": f"redis://night:{QUOTED}-wrong@{here}"},
        "unreachable host": {"FLEET_REDIS_URL": f"redis://night:{QUOTED}@127.0.0.1:9/0"},
        "few rights": {"FLEET_REDIS_URL": f"redis://few:{QUOTED}@{here}"},
        "malformed": {"FLEET_REDIS_URL": f"redis://night:{REDIS}/@{here}", "FLEET_PAYLOAD_KEYS": "marked-7Qx"},
        "no database": {"FLEET_DATABASE_URL": f"postgresql://night:{POSTGRES}@127.0.0.1:9/books"},
        "a password among options": {
            "FLEET_DATABASE_URL": f"postgresql://127.0.0.1:9/books?user=night&password={POSTGRES}&sslpassword=7Qx"
        },
        "a bare @ in a password": {"FLEET_DATABASE_URL": "postgresql://night:marked@7Qx@127.0.0.1/books"},
    }[broken]
    for words in (
        ["status"],
        ["console", "--port", "0"],
        ["doctor"],
        ["migrate"],
        ["outbox", "list"],
        ["jobs", "--advise"],
    ):
        running.start(*words, app=ROOT, **given)
    lasting = [running.start(*words, app=ROOT, **given) for words in (["work", "housekeeping"], ["beat"])]
    wait_until(lambda: sum(process.poll() is not None for process, _ in running.started) >= 5, LIMIT)
    wait_until(lambda: all(log.stat().st_size for _, log in running.started[-2:]), LIMIT)
    require_unmarked("ps", command_lines(running))
    running.stop()
    assert lasting
    require_unmarked("the logs", running.said())
    assert len(running.said()) > 500


def test_secrets_in_files_are_read_and_not_shown(running: Processes, tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir()
    for name in (*OUTSIDE, "FLEET_REDIS_URL", "FLEET_DATABASE_URL"):
        (folder / name).write_text(running.settings.pop(name))
    running.settings["FLEET_SECRETS_DIR"] = str(folder)
    for words in (["status"], ["doctor"]):
        running.start(*words, app=ROOT)
    for process, _ in running.started:
        process.wait(LIMIT)
    assert "housekeeping" in running.said()
    require_unmarked("the logs", running.said())


def _ended(running: Processes) -> bool:
    assert all(process.poll() is None for process, _ in running.started), running.said()
    return False
