"""The console over a staged fleet: in this process for its answers, as a process of its own for a browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from fleet import app as application
from fleet.app import App
from fleet.broker import FleetBroker
from fleet.console import tokens
from fleet.console.desk import Desk
from fleet.console.sessions import Sessions
from fleet.console.site import make_app
from fleet.storage import database
from tests.broker.proxy import Proxy
from tests.conftest import Environment
from tests.console import staged
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
LOCAL = "http://127.0.0.1"

Client = Callable[..., TestClient]


@pytest.fixture
def app(environment: Environment) -> App:
    return application.load(ROOT)


@pytest.fixture
def broker(app: App) -> FleetBroker:
    return application.process_broker()


@pytest.fixture
def fleet(app: App, broker: FleetBroker) -> Iterator[staged.Staged]:
    """A whole fleet, staged."""
    made = staged.whole(broker, app, database())
    wait_until(lambda: len(staged.seen(broker)) == len(made.reports))
    yield made
    made.stop()


@dataclass(frozen=True)
class Given:
    """Two tokens: one may read, one may operate."""

    reader: str
    operator: str
    lines: str


@pytest.fixture(scope="session")
def given() -> Given:
    reader, read_line = tokens.draw("rea", "read")
    operator, operate_line = tokens.draw("ann", "operate")
    return Given(reader, operator, f"{read_line}; {operate_line}")


@pytest.fixture
def client(app: App, broker: FleetBroker, given: Given) -> Client:
    """A client of a console in this process; without a login, or logged in with a token."""

    def make(token: str | None = None, *, login: bool = False, base: str = LOCAL, **more: Any) -> TestClient:
        known = tokens.read(given.lines, None) if login or token else ()
        desk = Desk(app, broker, Sessions(login=bool(known)), known)
        made = TestClient(make_app(desk), base_url=base, follow_redirects=False, **more)
        if token is not None:
            assert made.post("/login", data={"token": token}).status_code == 303
        return made

    return make


@pytest.fixture
def lossy(broker: FleetBroker, redis_url: str) -> Iterator[Proxy]:
    """Between this process's broker and Redis, which knows the scripts: each that is counted does something."""
    before = broker.client
    for script in (broker.own_scripts.revive, broker.own_scripts.fire_now):
        before.script_load(script.script)
    with Proxy(redis_url) as made:
        broker.__dict__["client"] = FleetBroker(url=made.url, namespace=broker.namespace, middleware=[]).client
        broker.__dict__.pop("own_scripts", None)
        yield made
        broker.client.close()
    broker.__dict__["client"] = before
    broker.__dict__.pop("own_scripts", None)


def form_token(client: TestClient, path: str) -> str:
    """The token that the forms of a page carry."""
    found = re.search(r'name="form_token" value="(\w+)"', client.get(path).text)
    assert found is not None, f"{path} has no form"
    return found[1]


@pytest.fixture
def console(environment: Environment, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Start `fleet console` as a process; returns its address."""
    running: list[subprocess.Popen[bytes]] = []

    def start(**settings: str) -> str:
        log = tmp_path / f"console-{len(running)}.log"
        with log.open("wb") as file:
            command = [sys.executable, "-m", "fleet", "--app", str(ROOT), "console", "--port", "0"]
            running.append(subprocess.Popen(command, env={**os.environ, **settings}, stderr=file, cwd=ROOT))
        return wait_until(lambda: address_of(log, running[-1]), 30)

    yield start
    for process in running:
        process.terminate()
    for process in running:
        process.wait(10)


def address_of(log: Path, process: subprocess.Popen[bytes]) -> str | None:
    """Where a console listens, by its log; None while it has not said so."""
    said = log.read_text()
    assert process.poll() is None, said
    found = re.search(r"console_started.*url=(\S+?)/(?:\s|$)", re.sub(r"\x1b\[[0-9;]*m", "", said))
    return found[1] if found else None
