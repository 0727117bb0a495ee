"""Promise 4 under attack: whatever becomes of workers, hosts and deadlines, a row is terminal within the bound that
`fleet jobs` states for its lane.

Each row remembers when its job last took it, and when it ended, by the database's clock; a trigger keeps the end, so
that the code under test does not keep the time it is judged by. The bound counts anew from an `on_lost` that began in
time and was cut off itself: a janitor passes over a row that its transaction holds locked (`fleet.bounds`).
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from dramatiq import Message
from sqlalchemy import Engine, create_engine, text

from fleet.broker import FleetBroker
from fleet.storage.engine import psycopg_url
from tests.chaos.workers.conftest import die as die
from tests.chaos.workers.conftest import say as say
from tests.conftest import ROOT, Environment
from tests.environment import child_path
from tests.waiting import wait_until

APP = Path(__file__).parent / "app"
COUNTED = "SELECT status, count(*) FROM parcels GROUP BY 1"
HARD = timedelta(seconds=4)  # of every parcel, as config/lanes.py has it
TABLE = """
DROP TABLE IF EXISTS parcels, told;
CREATE TABLE told (id integer NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE parcels (
  id integer PRIMARY KEY, how text NOT NULL, status text NOT NULL, lease_token text, lease_message text,
  lease_until timestamptz, attempts integer NOT NULL DEFAULT 0, started_at timestamptz, finished_at timestamptz,
  outcome text, terminal_at timestamptz);
CREATE OR REPLACE FUNCTION note_end() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  NEW.terminal_at := CASE WHEN NEW.status IN ('done', 'failed') THEN coalesce(OLD.terminal_at, clock_timestamp()) END;
  RETURN NEW; END $$;
CREATE TRIGGER note_end BEFORE UPDATE ON parcels FOR EACH ROW EXECUTE FUNCTION note_end();
"""
ENDS = """
SELECT id, how, status, outcome, attempts,
  coalesce(terminal_at, clock_timestamp()) - greatest(started_at,
    (SELECT max(at) FROM told WHERE told.id = parcels.id AND at BETWEEN started_at AND started_at + :limit
     AND at < coalesce(terminal_at, clock_timestamp()))) AS took
FROM parcels WHERE started_at IS NOT NULL ORDER BY took DESC
"""
Start = Callable[..., list[psutil.Popen]]


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return shutil.copytree(APP, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))


@pytest.fixture
def engine(environment: Environment) -> Iterator[Engine]:
    made = create_engine(psycopg_url(environment.database_url), isolation_level="AUTOCOMMIT")
    with made.connect() as connection:
        connection.execute(text(TABLE))
    yield made
    made.dispose()


@pytest.fixture
def start(app: Path, environment: Environment, tmp_path: Path) -> Iterator[Start]:
    """Starts commands of `fleet`, all at once, and waits for the lanes; whatever is left is killed afterwards."""
    started: list[psutil.Popen] = []

    def run(*commands: str) -> list[psutil.Popen]:
        given = {**os.environ, "FLEET_LOST_AFTER": "PT3S", "PYTHONPATH": child_path(ROOT)}
        logs = []
        for command in commands:
            log = tmp_path / f"{command.replace(' ', '-')}-{len(started)}.log"
            with log.open("wb") as sink:
                words = [sys.executable, "-m", "fleet", "--app", str(app), *command.split()]
                started.append(psutil.Popen(words, env=given, stdout=sink, stderr=subprocess.STDOUT))
            if command != "beat":
                logs.append(log)
        for log in logs:
            wait_until(lambda log=log: "worker_ready" in log.read_text(), 90)  # type: ignore[misc]
        return started[-len(commands) :]

    yield run
    for one in started:
        for process in family(one):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        one.wait(10)


def family(host: psutil.Process) -> list[psutil.Process]:
    """A host's processes, its supervisor first."""
    try:
        return [host, *host.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def children(host: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return [one for one in host.children() if "fleet.workers.child" in one.cmdline()]
    return []


def bound(app: Path) -> timedelta:
    """From the end of a job's hard budget, as `fleet jobs` prints it for the lane `jobs`."""
    given = {**os.environ, "PYTHONPATH": child_path(ROOT)}
    words = [sys.executable, "-m", "fleet", "--app", str(app), "jobs"]
    said = subprocess.run(words, env=given, capture_output=True, text=True, check=True).stdout
    of_lane = re.split(r"Lane (?=\w)", said)
    (lane,) = [part for part in of_lane if part.startswith("jobs")]
    found = re.search(r"at the latest (?:(\d+)m)?(?:(\d+)s)? after its hard budget", re.sub(r"\s+", " ", lane))
    assert found, said
    return timedelta(minutes=int(found[1] or 0), seconds=int(found[2] or 0))


def send(environment: Environment, engine: Engine, hows: list[str]) -> None:
    """A row each, and its message."""
    sender = FleetBroker(url=environment.redis_url, namespace=environment.namespace, middleware=[])
    with engine.connect() as connection:
        before = connection.execute(text("SELECT count(*) FROM parcels")).scalar_one()
        for number, how in enumerate(hows, before + 1):
            row = {"id": number, "how": how}
            connection.execute(text("INSERT INTO parcels (id, how, status) VALUES (:id, :how, 'queued')"), row)
            sender.enqueue(Message("parcels", "deliver", (number,), {}, {}))
    sender.client.close()


def states(engine: Engine) -> dict[str, int]:
    with engine.connect() as connection:
        return dict(map(tuple, connection.execute(text(COUNTED))))


def until_running(engine: Engine, count: int = 1) -> None:
    wait_until(lambda: states(engine).get("running", 0) >= count, 60)


def judge(engine: Engine, limit: timedelta, say: Callable[[str], None]) -> int:
    """Each row that a job ever took is terminal, or may still run, and was so in time; returns how many were taken."""
    with engine.connect() as connection:
        rows = connection.execute(text(ENDS), {"limit": limit}).all()
    late = [row for row in rows if row.took > limit]
    say(f"{len(rows)} rows, {states(engine)}; the slowest took {rows[0].took} from its job or on_lost, of {limit}")
    assert not late, "\n".join(map(str, late))
    return len(rows)


@pytest.mark.alone  # judged in seconds, and its workers are lost after three
@pytest.mark.timeout(400)
def test_workers_die_hosts_vanish_deadlines_are_missed_and_each_row_is_terminal_by_what_fleet_jobs_says(
    app: Path,
    engine: Engine,
    environment: Environment,
    start: Start,
    die: random.Random,
    say: Callable[[str], None],
) -> None:
    limit = HARD + bound(app)
    _, _, *hosts = start("beat", "work housekeeping", "work jobs", "work jobs")
    for attack in ("child", "host", "stopped"):
        hows = ["well"] * 4 + ["slow", "deaf", "deaf", "gil", "dies"]
        die.shuffle(hows)
        send(environment, engine, hows)
        until_running(engine, 2)
        time.sleep(die.uniform(0, 2))  # somewhere in their lives
        if attack == "child":
            for victim in [one for host in hosts for one in children(host)][:: die.choice([1, 2])]:
                victim.kill()
        elif attack == "host":
            for one in family(hosts.pop(0)):
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            hosts += start("work jobs")
        else:
            stopped = family(hosts[0])
            for one in stopped:
                with suppress(psutil.NoSuchProcess):
                    one.suspend()
            time.sleep(5)  # longer than it takes to be lost
            for one in reversed(stopped):
                with suppress(psutil.NoSuchProcess):
                    one.resume()
    send(environment, engine, ["host", "deaf", "deaf", "slow", "well"])
    until_running(engine)
    wait_until(lambda: any(not host.is_running() or host.status() == psutil.STATUS_ZOMBIE for host in hosts), 90)
    start("work jobs")
    wait_until(lambda: "running" not in states(engine), 60)  # a message may wait longer, as a suspect; its row does not
    assert judge(engine, limit, say) > 20


@pytest.mark.alone
def test_a_row_whose_host_vanishes_with_all_others_is_ended_by_the_janitor_in_time(
    app: Path, engine: Engine, environment: Environment, start: Start, say: Callable[[str], None]
) -> None:
    limit = HARD + bound(app)
    _, _, host = start("beat", "work housekeeping", "work jobs")
    send(environment, engine, ["deaf"] * 3 + ["gil"])
    until_running(engine)
    for one in family(host):
        with suppress(psutil.NoSuchProcess):
            one.kill()
    wait_until(lambda: "running" not in states(engine), 30)
    judge(engine, limit, say)
    assert set(states(engine)) <= {"failed", "queued"}
