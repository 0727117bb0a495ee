"""The sandbox's mail server as a process of its own, and Python's own SMTP client."""

from __future__ import annotations

import json
import os
import smtplib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fleet.clock import Night, environment

ROOT = Path(__file__).parents[2]
NIGHT = Night(origin=datetime(2026, 3, 2, 6, 0, tzinfo=UTC), anchor=datetime.now(UTC), rate=240.0)


@dataclass
class Sandbox:
    """A running server and its log."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    ready, log = tmp_path / "ready", tmp_path / "mail.jsonl"
    command = [sys.executable, "-m", "books.sandbox.mail", "--port", "0", "--ready-file", str(ready), "--log", str(log)]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment(NIGHT)})
    give_up = time.monotonic() + 15
    while not ready.exists():
        assert process.poll() is None, "the sandbox mail server did not start"
        assert time.monotonic() < give_up, "the sandbox mail server did not start in time"
        time.sleep(0.02)
    yield Sandbox(process, ready.read_text().strip(), log)
    process.terminate()
    process.wait(5)


def mail(key: str | None) -> EmailMessage:
    made = EmailMessage()
    made["From"], made["To"] = "Bücher <books@example.org>", "office@customer.example"
    made["Subject"] = "Rechnung 2026-0100: 12,34 € fällig"
    made["Message-ID"] = "<invoice-2026-0100@example.org>"
    if key:
        made["X-Idempotency-Key"] = key
    made.set_content("Guten Morgen\n")
    return made


def connect(sandbox: Sandbox) -> smtplib.SMTP:
    at = urlsplit(sandbox.url)
    assert at.scheme == "smtp"
    return smtplib.SMTP(at.hostname or "", at.port or 0, timeout=5)


def test_a_mail_that_was_accepted_is_one_line_of_the_log(sandbox: Sandbox) -> None:
    with connect(sandbox) as server:
        server.send_message(mail("invoice-2026-0100"))
        (line,) = sandbox.lines()
        server.send_message(mail(None))
    assert line["from"] == "books@example.org"
    assert line["to"] == ["office@customer.example"]
    assert line["subject"] == "Rechnung 2026-0100: 12,34 € fällig"
    assert line["message_id"] == "<invoice-2026-0100@example.org>"
    assert line["idempotency_key"] == "invoice-2026-0100"
    assert line["size"] > 200
    assert abs(line["real"] - time.time()) < 30
    assert NIGHT.origin <= datetime.fromisoformat(line["time"])
    assert [found["idempotency_key"] for found in sandbox.lines()] == ["invoice-2026-0100", None]


def test_sigterm_ends_the_server_though_a_session_is_open(sandbox: Sandbox) -> None:
    server = connect(sandbox)
    server.ehlo()
    sandbox.process.terminate()
    assert sandbox.process.wait(2) == 0
    server.close()
