"""The sandbox's authority and payment gateway as a process, and what its log says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
KEY = "sandbox"


@dataclass
class SandboxGateway:
    """A running server and its log."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def script(self, **faults: list[str | None]) -> None:
        """What the next requests meet: `send=["silent", None], ask=["away"]`."""
        httpx.post(f"{self.url}/sandbox/script", json=faults).raise_for_status()

    def lines(self, **which: Any) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if all(line[name] == value for name, value in which.items())]

    def taken(self) -> Counter[str]:
        """How often each reference was filed or charged, whatever the keys."""
        return Counter(line["reference"] for line in self.lines(taken=True))

    def settings(self) -> dict[str, str]:
        return {
            "BOOKS_AUTHORITY_URL": f"{self.url}/authority",
            "BOOKS_AUTHORITY_KEY": KEY,
            "BOOKS_PAYMENTS_URL": f"{self.url}/payments",
            "BOOKS_PAYMENTS_KEY": KEY,
        }


@contextmanager
def sandbox_gateway(folder: Path, *arguments: str) -> Iterator[SandboxGateway]:
    """Started with these options, by default without faults of its own; the log is `folder`'s, also of earlier ones."""
    ready, log = folder / "gateway.url", folder / "gateway.jsonl"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "books.sandbox.gateway", "--ready-file", str(ready), "--log", str(log)]
    process = subprocess.Popen([*command, *(arguments or ("--calm",))], cwd=ROOT, env={**os.environ})
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, 20)
        yield SandboxGateway(process, ready.read_text().strip(), log)
    finally:
        process.terminate()
        process.wait(5)
