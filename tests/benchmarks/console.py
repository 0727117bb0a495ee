"""What opening each page of the console costs Redis while a million messages wait: server time and commands a page.

Measured by `INFO commandstats` between two readings, the median of several openings, a night of ledgers and runs behind
the fleet. Scripts count whole. There is no contender, and no browser: a page is asked for as a browser would.

Measured by a process of its own (`python -m tests.benchmarks.console`), on servers that FLEET_REDIS_URL and
FLEET_DATABASE_URL name.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import uuid
from typing import Any

from sqlalchemy import create_engine, text
from starlette.testclient import TestClient

from fleet import app as application
from fleet.console.desk import Desk
from fleet.console.letters import address
from fleet.console.pages import PAGES, night
from fleet.console.sessions import Sessions
from fleet.console.site import make_app
from fleet.storage import database
from fleet.storage.engine import psycopg_url
from fleet.storage.migrate import migrate
from tests.benchmarks.stage import ROOT
from tests.broker.letters import fill
from tests.console import staged

WAITING, DEAD, OPENINGS = 1_000_000, 100_000, 5
_AIM_MS = 10.0
_OURS = ("info", "config|resetstat")


def report(redis_url: str, server_url: str) -> None:
    """Have it measured on two servers, in a namespace and a database of its own, and printed."""
    name = f"bench_{uuid.uuid4().hex[:12]}"
    url = psycopg_url(server_url).set(database=name)
    admin = create_engine(psycopg_url(server_url), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f'CREATE DATABASE "{name}"'))
        environment = {
            **os.environ,
            "FLEET_REDIS_URL": redis_url,
            "FLEET_DATABASE_URL": url.render_as_string(hide_password=False),
            "FLEET_NAMESPACE": name,
        }
        subprocess.run([sys.executable, "-m", __name__], env=environment, cwd=ROOT, check=True)
        connection.execute(text(f'DROP DATABASE "{name}" WITH (FORCE)'))
    admin.dispose()


def main() -> None:
    """Measure, and print a line a page."""
    migrate(database(), ROOT)
    app = application.load(ROOT)
    broker = application.process_broker()
    made = staged.whole(broker, app, database())
    staged.waiting(broker, "transaction_sync", WAITING, age=staged.MINUTE)
    fill(broker, DEAD, queue="charging")
    made.stop()  # its reports stand for ten seconds more; a thread that writes would be in the figures
    client = TestClient(make_app(Desk(app, broker, Sessions(login=False))), base_url="http://127.0.0.1")
    print(
        f"\nconsole: what a page costs Redis while {WAITING:,} messages wait and {DEAD:,} are dead; aim {_AIM_MS:g} ms"
    )
    paths = [page.path.replace("{entry}", "nightly_audit") for page in PAGES]
    paths = [path.replace("{queue}/{id}", f"charging/{address('charging-000000')}") for path in paths]
    paths += ["/night?which=tomorrow", "/dead?queue=charging&actor=nobody", "/explain?what=transaction_sync"]
    for path in [*paths, "/explain?what=transaction_sync-waits-0500000"]:
        _measure(client, broker.client, path)
    for key in broker.client.scan_iter(f"{broker.namespace}:*", count=1_000):
        broker.client.unlink(key)


def _measure(client: TestClient, redis: Any, path: str) -> None:
    took, commands = [], []
    for _ in range(OPENINGS):
        night.KEPT.forget()
        redis.config_resetstat()
        answer = client.get(path)
        seen = {name.removeprefix("cmdstat_"): one for name, one in redis.info("commandstats").items()}
        counted = [one for name, one in seen.items() if name not in _OURS]
        assert answer.status_code == 200, (path, answer.status_code)
        took.append(sum(one["usec"] for one in counted) / 1000)
        commands.append(sum(one["calls"] for one in counted))
    middle = statistics.median(took)
    over = "" if middle < _AIM_MS else "OVER"
    print(f"  {path:45} {middle:7.2f} ms  {statistics.median(commands):5.0f} commands  {over}".rstrip())


if __name__ == "__main__":
    main()
