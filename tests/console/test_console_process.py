"""`fleet console` as it is started: where it listens, when it refuses to, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.console.serving import is_loopback
from fleet.console.tokens import digest_of, draw, matching, read
from fleet.errors import SettingsInvalid
from tests.conftest import Environment
from tests.console.conftest import ROOT, Given, address_of
from tests.waiting import wait_until

Start = Callable[..., str]


def run(*words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fleet", "--app", str(ROOT), "console", *words]
    return subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7"])
def test_outside_loopback_it_does_not_start_without_a_token_and_says_how_to_get_one(
    environment: Environment, host: str
) -> None:
    said = run("--host", host)
    assert said.returncode == 2
    assert "there is no token to log in with" in said.stderr and "fleet console token NAME" in said.stderr


def test_outside_loopback_it_asks_for_a_login(console: Start, given: Given) -> None:
    url = console(FLEET_CONSOLE_HOST="0.0.0.0", FLEET_CONSOLE_TOKENS=given.lines)
    with urllib.request.urlopen(url.replace("0.0.0.0", "127.0.0.1")) as answer:
        assert answer.url.endswith("/login?next=%2F")


def test_it_ends_at_once_though_a_page_is_open(console: Start, environment: Environment, tmp_path: Path) -> None:
    log = tmp_path / "own.log"
    with log.open("wb") as file:
        command = [sys.executable, "-m", "fleet", "--app", str(ROOT), "console", "--port", "0"]
        process = subprocess.Popen(command, stderr=file, cwd=ROOT)
    url = wait_until(lambda: address_of(log, process), 30)
    with urllib.request.urlopen(f"{url}/live?page=/lanes", timeout=10) as stream:
        assert stream.readline().startswith(b"event: ")
        process.send_signal(signal.SIGTERM)
        process.wait(15)
    assert process.returncode in (0, -signal.SIGTERM)
    assert "Traceback" not in log.read_text()


def test_a_token_is_drawn_with_the_line_that_lets_it_in() -> None:
    said = run("token", "ann", "--role", "operate").stdout
    secret = re.findall(r"^  (\S+)$", said, re.MULTILINE)[0]
    line = re.findall(r"^  (ann operate sha256:\w+)$", said, re.MULTILINE)[0]
    (token,) = read(line, None)
    assert matching([token], secret) == token
    assert secret not in line


def test_a_role_or_a_name_that_cannot_be_is_refused() -> None:
    assert "give read or operate" in run("token", "ann", "--role", "admin").stderr
    assert run("token", "ann smith").returncode == 2


def test_tokens_are_read_from_a_file_with_comments_and_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# on call\n\nann operate sha256:{digest_of('a')}  # since May\nbob read {digest_of('b')}\n")
    assert [(token.name, token.role) for token in read(f"eve read {digest_of('e')}", file)] == [
        ("eve", "read"),
        ("ann", "operate"),
        ("bob", "read"),
    ]
    assert matching(read(None, file), "c") is None


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("ann operate secret", "FLEET_CONSOLE_TOKENS, line 1, is no token"),
        (f"ann admin {digest_of('a')}", "is no token"),
        (f"ann read {digest_of('a')}; ann operate {digest_of('b')}", "FLEET_CONSOLE_TOKENS and its file name two"),
    ],
)
def test_what_is_no_token_is_refused_without_saying_it(written: str, says: str) -> None:
    with pytest.raises(SettingsInvalid) as raised:
        read(written, None)
    assert says in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("name", ["none", "no\0name"])
def test_a_file_of_tokens_that_is_not_there_is_said(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsInvalid, match="FLEET_CONSOLE_TOKENS_FILE"):
        read(None, tmp_path / name)


def test_a_drawn_token_is_another_each_time() -> None:
    assert draw("ann", "read")[0] != draw("ann", "read")[0]


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("127.9.9.9", True), ("0.0.0.0", False), ("::", False),
     ("night-1", False), ("", False)],
)  # fmt: skip
def test_what_only_this_machine_reaches(host: str, own: bool) -> None:
    assert is_loopback(host) is own


def test_the_settings_show_no_token(environment: Environment, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    from fleet.settings import Settings

    monkeypatch.setenv("FLEET_CONSOLE_TOKENS", given.lines)
    assert "sha256" not in repr(Settings.read()) and json.dumps(given.lines) not in repr(Settings.read())
