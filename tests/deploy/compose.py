"""docker-compose.yml as local processes: each service's own command, environment and healthcheck, without an engine.

What a container has of its own is replaced: the addresses of Redis and PostgreSQL, and the ports, which share one
host here. Everything else is the file's. Not shown: images, users, read-only roots, limits and networks.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer.main
import yaml

from fleet.cli import cli
from tests.environment import child_path
from tests.ports import free_port
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "docker-compose.yml").read_text()
SECRETS = {"POSTGRES_PASSWORD": "only-here"}
_VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")
_DURATION = re.compile(r"(\d+)(ms|s|m|h)")
_COMMANDS = typer.main.get_command(cli).commands  # type: ignore[attr-defined]
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def services(variables: Mapping[str, str] = SECRETS) -> dict[str, dict[str, Any]]:
    """The services with `${VARIABLE:-default}` filled in as Compose does, from these variables alone."""

    def value(found: re.Match[str]) -> str:
        name, kind, other = found.groups()
        given = variables.get(name, "")
        assert given or kind != "?", f"{name}: {other}"
        return given or (other or "" if kind == "-" else "")

    def filled(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: filled(inner) for name, inner in part.items()}
        if isinstance(part, list):
            return [filled(inner) for inner in part]
        return _VARIABLE.sub(value, part) if isinstance(part, str) else part

    body: dict[str, dict[str, Any]] = filled(yaml.safe_load(TEXT)["services"])
    return body


def in_order(known: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Their names, each after those it depends on."""
    ordered: list[str] = []

    def put(name: str) -> None:
        for needed in known[name].get("depends_on", {}):
            put(needed)
        if name not in ordered:
            ordered.append(name)

    for name in known:
        put(name)
    return ordered


def seconds(duration: str) -> float:
    return sum(float(count) * _UNITS[unit] for count, unit in _DURATION.findall(duration))


def _is_ours(body: Mapping[str, Any]) -> bool:
    """Whether the command line takes its command; that it takes each is `tests/architecture/test_compose.py`'s."""
    return "build" in body and body["command"][1] in _COMMANDS


@dataclass
class Service:
    """One service as a process of this host."""

    name: str
    body: Mapping[str, Any]
    folder: Path
    urls: Mapping[str, str]
    port: int = field(default_factory=free_port)  # of its metrics, or of the console
    process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The file's variables with this host's addresses, and nothing of the test's own but where Python is."""
        given = {name: str(value) for name, value in self.body["environment"].items()}
        assert given.keys() >= self.urls.keys()
        ports = {"FLEET_METRICS_HOST": "127.0.0.1", "FLEET_METRICS_PORT": str(self.port)}
        console = {"FLEET_CONSOLE_PORT": str(self.port)} if self.body["command"][1] == "console" else {}
        return {**given, **self.urls, **ports, **console, "PATH": os.environ["PATH"], "PYTHONPATH": child_path(ROOT)}

    @property
    def log(self) -> str:
        return (self.folder / f"{self.name}.log").read_text(errors="replace")

    def start(self) -> None:
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                self._here(self.body["command"]),
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def healthy(self) -> bool:
        """Whether its healthcheck's own command ends with code 0, within its own time-out."""
        assert self.process is not None
        assert self.process.poll() is None, f"{self.name} ended: {self.log[-3000:]}"
        kind, *command = self.body["healthcheck"]["test"]
        assert kind == "CMD"
        try:
            done = subprocess.run(
                self._here(command),
                cwd=ROOT,
                env=self.environment,
                capture_output=True,
                timeout=seconds(self.body["healthcheck"]["timeout"]),
            )
        except subprocess.TimeoutExpired:  # as for Docker: not healthy this time
            return False
        return done.returncode == 0

    def page(self, path: str) -> tuple[int, str]:
        """What its port answers; the metrics' port, or the console's."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def stop(self) -> tuple[int | None, float]:
        """SIGTERM; its exit code (None: it outlived its stop grace) and how long it took."""
        assert self.process is not None
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds(self.body.get("stop_grace_period", "10s"))), time.monotonic() - began
        except subprocess.TimeoutExpired:
            return None, time.monotonic() - began

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _here(self, command: list[str]) -> list[str]:
        program, *arguments = command
        programs = {"fleet": [sys.executable, "-m", "fleet"], "python": [sys.executable]}
        here = [argument.replace("0.0.0.0", "127.0.0.1").replace(":8310", f":{self.port}") for argument in arguments]
        return [*programs[program], *here]


class Stack:
    """The fleet's services, started in the file's order."""

    def __init__(self, folder: Path, urls: Mapping[str, str], variables: Mapping[str, str]) -> None:
        known = services({**SECRETS, **variables})
        self.order = [name for name in in_order(known) if _is_ours(known[name])]
        self.services = {name: Service(name, known[name], folder, urls) for name in self.order}

    @property
    def lasting(self) -> Iterator[Service]:
        """What runs on: all but the migration."""
        return (service for service in self.services.values() if service.body["restart"] != "no")

    def up(self) -> None:
        """Start each when what it depends on is there: here, when the migration has ended well."""
        for name in self.order:
            service = self.services[name]
            service.start()
            if service.body["restart"] == "no":
                assert service.process is not None
                assert service.process.wait(60) == 0, service.log

    def wait_until_healthy(self) -> None:
        for service in self.lasting:
            wait_until(service.healthy, 90)

    def down(self) -> None:
        for service in self.services.values():
            service.kill()
