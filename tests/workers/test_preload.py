"""A worker process has ready what its bodies import, and what its lane warms, before it takes a message."""

from __future__ import annotations

import json
import shutil
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from fleet.bell import Bell
from fleet.errors import DeclarationInvalid
from fleet.workers import preload
from fleet.workers.preload import imported_by
from tests.waiting import wait_until
from tests.workers.app.config.lanes import LANES
from tests.workers.conftest import APP, Running

Supervise = Callable[..., Running]

WARMTH = """
import os, time
from fleet.logs import get_logger


def ready():
    get_logger(__name__).info("warmed", pid=os.getpid())
    {then}
"""
IMPORTING = """
from actors.jobs import jobs


@jobs.actor
def heavy() -> None:
    import wanted
"""
WANTED = """
import os
from fleet.logs import get_logger

get_logger(__name__).info("imported", pid=os.getpid())
"""


@pytest.fixture
def app(tmp_path: Path) -> Callable[..., Path]:
    """The lane's application with an actor whose body imports a module, whose function the lane may warm."""

    def write(*, warm: str | None = None, then: str = "pass") -> Path:
        root = shutil.copytree(APP, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
        (root / "warmth.py").write_text(WARMTH.format(then=then))
        (root / "wanted.py").write_text(WANTED)
        (root / "actors" / "heavy.py").write_text(IMPORTING)
        with (root / "config" / "lanes.py").open("a") as lanes:
            lanes.write(f"\nfrom dataclasses import replace\nLANES = [replace(LANES[0], warm={warm!r})]\n")
        return root

    return write


def test_what_a_body_imports_is_found_also_in_what_it_defines() -> None:
    def body() -> None:
        import json
        from xml.dom import minidom, pulldom

        def inner() -> None:
            import email.message as _message  # noqa: F401

        print(json, minidom, pulldom, inner)

    found = set(imported_by(body.__code__))
    assert {"json", "xml.dom", "xml.dom.minidom", "xml.dom.pulldom", "email.message"} <= found


def test_a_process_imports_and_warms_before_it_is_ready(supervise: Supervise, app: Callable[..., Path]) -> None:
    lane = supervise(app(warm="warmth:ready"))
    lane.ready(1)
    (child,) = lane.children()
    said = [json.loads(line) for line in lane.log.read_text().splitlines() if line.startswith("{")]
    told = [line["event"] for line in said if line.get("pid", child) == child]
    assert [event for event in told if event in ("imported", "warmed", "worker_ready")] == [
        "imported",
        "warmed",
        "worker_ready",
    ]


def test_a_lane_whose_warm_raises_says_so_and_serves(supervise: Supervise, app: Callable[..., Path]) -> None:
    lane = supervise(app(warm="warmth:ready", then="raise OSError('no model there')"))
    lane.ready(1)
    assert any("no model there" in line for line in lane.logged("warm_failed"))
    lane.gate.touch()
    lane.send("anything")
    wait_until(lambda: lane.events("end"), 20)


def test_a_process_that_is_told_to_end_while_it_warms_ends(supervise: Supervise, app: Callable[..., Path]) -> None:
    lane = supervise(app(warm="warmth:ready", then="time.sleep(600)"))
    wait_until(lambda: lane.logged("warmed"), 20)
    lane.process.send_signal(signal.SIGTERM)
    assert lane.process.wait(15) == 0


def test_what_warms_for_too_long_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preload, "WARM_WITHIN", timedelta(seconds=0.1))
    goes_on = threading.Event()
    monkeypatch.setattr(preload, "warm_of", lambda lane: goes_on.wait)
    began = time.monotonic()
    preload.warm(replace(LANES[0], warm="warmth:ready"), Bell())
    goes_on.set()
    assert time.monotonic() - began < 5, "the lane would have waited for ever"


@pytest.mark.parametrize("warm", ["", "warmth", "warmth.ready", "warmth:", 7])
def test_a_warm_that_names_no_function_is_refused(warm: object) -> None:
    with pytest.raises(DeclarationInvalid, match=r"warm=.*name a function, as 'books\.warming:people'"):
        replace(LANES[0], warm=warm)
