"""The world outside the house, as processes: the sandbox's bank aggregator, model, gateway and mail server."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import FleetError

_START_SECONDS = 30.0
BANK_KEY = "sandbox-bank-key"
MODEL_KEY = "sandbox-model-key"
GATEWAY_KEY = "sandbox-gateway-key"


class SandboxFailed(FleetError):
    """Raised when a server of the sandbox does not come up; the message names its log."""


@dataclass(frozen=True)
class World:
    """Where the sandbox listens, and the files its servers write a line a request to."""

    bank_url: str
    model_url: str
    gateway_url: str
    mail_url: str
    bank_log: Path
    model_log: Path
    gateway_log: Path
    mail_log: Path

    def environment(self) -> dict[str, str]:
        """The application's settings that point it at this world."""
        host, _, port = self.mail_url.removeprefix("smtp://").rpartition(":")
        return {
            "BOOKS_BANK_URL": self.bank_url,
            "BOOKS_BANK_SECRET_ID": "sandbox",
            "BOOKS_BANK_SECRET_KEY": BANK_KEY,
            "BOOKS_MODEL_URL": f"{self.model_url}/v1",
            "BOOKS_MODEL_KEY": MODEL_KEY,
            "BOOKS_AUTHORITY_URL": f"{self.gateway_url}/authority",
            "BOOKS_AUTHORITY_KEY": GATEWAY_KEY,
            "BOOKS_PAYMENTS_URL": f"{self.gateway_url}/payments",
            "BOOKS_PAYMENTS_KEY": GATEWAY_KEY,
            "BOOKS_SMTP_HOST": host,
            "BOOKS_SMTP_PORT": port,
            "BOOKS_SMTP_TLS": "none",
            "BOOKS_SMTP_USER": "",
            "BOOKS_SMTP_PASSWORD": "",
        }


@contextmanager
def sandbox(folder: Path, *, seed: int, accounts: int, environment: Mapping[str, str]) -> Iterator[World]:
    """Start the servers on free ports and end them with the block; `environment` tells them the night's clock.

    Raises `SandboxFailed`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    arguments = {
        "bank": ["--seed", str(seed), "--accounts", str(accounts)],
        "model": ["--seed", str(seed), "--key", MODEL_KEY],
        "gateway": ["--seed", str(seed), "--key", GATEWAY_KEY],
        "mail": [],
    }
    with ExitStack() as running:
        started = {
            name: running.enter_context(_server(name, folder, extra, environment)) for name, extra in arguments.items()
        }
        urls = {name: _url(name, folder, process) for name, process in started.items()}
        bank, model, gateway, mail = urls.values()
        yield World(bank, model, gateway, mail, *(folder / f"{name}.jsonl" for name in arguments))


@contextmanager
def _server(
    name: str, folder: Path, arguments: list[str], environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    ready = folder / f"{name}.url"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", f"books.sandbox.{name}", "--port", "0", "--ready-file", str(ready)]
    with (folder / f"{name}.log").open("ab") as log_file:
        process = subprocess.Popen(
            [*command, "--log", str(folder / f"{name}.jsonl"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **environment, "FLEET_PARENT": str(os.getpid())},
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)


def _url(name: str, folder: Path, process: subprocess.Popen[bytes]) -> str:
    ready, ends = folder / f"{name}.url", time.monotonic() + _START_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        if ready.exists():
            return ready.read_text().strip()
        time.sleep(0.05)
    log_path = folder / f"{name}.log"
    tail = log_path.read_text(errors="replace")[-1000:]
    raise SandboxFailed(f"The sandbox's {name} server did not start. Its log ({log_path}):\n{tail}")
