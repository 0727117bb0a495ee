"""A web process that imports `actors` to call `.send` loads none of what workers need, and opens nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = [
    "sqlalchemy",
    "alembic",
    "psycopg",
    "httpx",
    "openai",
    "pydantic",
    "rapidocr",
    "onnxruntime",
    "cv2",
    "numpy",
    "pypdfium2",
    "sentry_sdk",
    "prometheus_client",
    "structlog",
    "apscheduler",
]
SCRIPT = """
import importlib, json, pkgutil, socket, sys, threading
opened = []
class Watched(socket.socket):
    def connect(self, *a): opened.append("connect")
    def bind(self, *a): opened.append("bind")
socket.socket = Watched
for room in ("actors", "janitors"):
    package = importlib.import_module(room)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{room}.{module.name}")
print(json.dumps({"modules": sorted(sys.modules), "opened": opened, "threads": threading.active_count()}))
"""


def test_importing_the_actors_loads_nothing_heavy_and_opens_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    seen = json.loads(done.stdout)
    assert [name for name in HEAVY if name in seen["modules"]] == []
    assert seen["opened"] == []
    assert seen["threads"] == 1
    assert not [name for name in seen["modules"] if name.startswith("books.")]
