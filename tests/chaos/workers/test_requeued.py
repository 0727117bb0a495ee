"""A dead letter that a person queues again while the process it hung in still lives, for its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dramatiq import Message
from sqlalchemy import Engine, create_engine, text

from fleet.broker import FleetBroker, keys
from fleet.broker.dead import requeue, select
from fleet.storage.engine import psycopg_url
from tests.chaos.workers.lane import QUEUE, until_gone
from tests.conftest import Environment
from tests.waiting import wait_until
from tests.workers.conftest import Running

APP = Path(__file__).parent / "requeued"
TABLES = """
DROP TABLE IF EXISTS parcels, told;
CREATE TABLE told (id integer NOT NULL);
CREATE TABLE parcels (
  id integer PRIMARY KEY, status text NOT NULL, lease_token text, lease_message text, lease_until timestamptz,
  attempts integer NOT NULL DEFAULT 0, started_at timestamptz, finished_at timestamptz, outcome text);
INSERT INTO parcels (id, status) VALUES (1, 'queued');
"""


@pytest.fixture
def ask(environment: Environment) -> Iterator[Callable[[str], list[Any]]]:
    """Asks the database, in which one parcel is queued."""
    engine: Engine = create_engine(psycopg_url(environment.database_url), isolation_level="AUTOCOMMIT")

    def rows(query: str) -> list[Any]:
        with engine.connect() as connection:
            return list(map(tuple, connection.execute(text(query))))

    with engine.connect() as connection:
        connection.execute(text(TABLES))
    yield rows
    engine.dispose()


@pytest.fixture
def sender(environment: Environment) -> Iterator[FleetBroker]:
    made = FleetBroker(url=environment.redis_url, namespace=environment.namespace, middleware=[])
    yield made
    made.client.close()


def test_a_hung_job_that_is_queued_again_keeps_its_row_when_the_process_of_its_first_run_ends(
    supervise: Callable[..., Running], sender: FleetBroker, ask: Callable[[str], list[Any]], tmp_path: Path
) -> None:
    running, bodies = supervise(APP), keys.bodies(sender.namespace, QUEUE)
    sender.enqueue(Message(QUEUE, "neighbour", (str(tmp_path),), {}, {}))
    wait_until(lambda: (tmp_path / "runs").exists() and (tmp_path / "runs").read_text(), 30)
    sender.enqueue(Message(QUEUE, "deliver", (1, str(tmp_path)), {}, {}))
    letters = wait_until(lambda: select(sender, [QUEUE]), 30)
    running.ready(2)  # the process in place of the one it hangs in
    assert list(requeue(sender, letters, a_second=1_000)) == ["moved"]
    wait_until(lambda: ask("SELECT attempts FROM parcels") == [(2,)], 10)

    (tmp_path / "neighbour").touch()
    until_gone([int((tmp_path / "runs").read_text())], 10)
    its_own = {letters[0].id.encode()}
    wait_until(lambda: set(sender.client.hkeys(bodies)) <= its_own, 10)  # what was sent for its loss has ended
    row = ask("SELECT status, attempts, outcome FROM parcels")
    (tmp_path / "second").touch()
    assert row == [("running", 2, None)]
    wait_until(lambda: not sender.client.exists(bodies), 10)
    assert ask("SELECT status, attempts, outcome FROM parcels") == [("done", 2, "the second run")]
    assert ask("SELECT id FROM told") == [] and select(sender, [QUEUE]) == []
    assert len(running.logged("on_lost_left_out")) == 1
