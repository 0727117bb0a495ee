"""A fleet a shard: two fleets of one application, a Redis and a database each; what ends one of them ends one.

The truth is what jobs wrote into their shard's journal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

import fleet
from fleet import embedded
from fleet.broker import keys
from fleet.broker.broker import NotAccepted
from fleet.catalogue import Connection
from tests.broker.conftest import OwnRedis
from tests.conftest import made_database
from tests.security.processes import fast_night, processes
from tests.waiting import wait_until

NAMESPACE = "fleet"  # both say the same: what divides them is the server
LIMIT = 60
JOBS = 200


@dataclass(frozen=True)
class Shard:
    """One fleet: its Redis, the journal of its jobs, and a connection of a web process that sends to it."""

    server: OwnRedis
    journal: Path
    connection: Connection

    def send(self, what: str) -> set[str]:
        """Send some jobs; the lines that they will write."""
        for number in range(JOBS):
            self.connection.send("did", f"{what}-{number}")
        return {f"did {what}-{number}" for number in range(JOBS)}

    def lines(self) -> Counter[str]:
        """How often each line was written; slots of the entry `ticks` all write the same."""
        return Counter(self.journal.read_text().splitlines() if self.journal.exists() else [])

    def jobs(self) -> dict[str, int]:
        """How often each sent job ran; what the schedule sends is left out."""
        return {line: times for line, times in self.lines().items() if line.startswith("did ")}

    def fires(self) -> None:
        """Wait for slots that begin from now on."""
        before = self.lines()["ticks slot"]
        wait_until(lambda: self.lines()["ticks slot"] >= before + 2, LIMIT)


@pytest.fixture
def shards(tmp_path: Path, servers: embedded.Urls, migrated_template: str) -> Iterator[tuple[Shard, Shard]]:
    made = []
    with ExitStack() as stack:
        for name in ("north", "south"):
            folder = tmp_path / name
            folder.mkdir()
            server = OwnRedis(folder)
            server.start()
            stack.callback(server.stop)
            settings = {
                "FLEET_NAMESPACE": NAMESPACE,
                "FLEET_REDIS_URL": server.url,
                "FLEET_DATABASE_URL": stack.enter_context(made_database(servers.database_url, migrated_template)),
                "TEST_JOURNAL": str(folder / "journal"),
            }
            running = stack.enter_context(processes(folder, **settings, **fast_night(60)))
            for words in (("work", "work"), ("work", "keeping"), ("beat",)):
                running.start(*words)
            made.append(Shard(server, folder / "journal", fleet.connect(server.url, namespace=NAMESPACE)))
        for shard in made:
            wait_until(lambda s=shard: s.server.client.hexists(keys.catalogue(NAMESPACE), "did"), LIMIT)  # type: ignore[misc]
        yield made[0], made[1]


def test_a_shard_whose_redis_dies_is_alone_in_it_and_goes_on_with_what_it_had_accepted(
    shards: tuple[Shard, Shard],
) -> None:
    north, south = shards
    theirs = {north: north.send("before"), south: south.send("before")}
    for shard in shards:
        shard.fires()
    theirs[north] |= north.send("last")
    north.server.kill()
    with pytest.raises(NotAccepted):
        north.connection.send("did", "refused")
    theirs[south] |= south.send("meanwhile")
    wait_until(lambda: south.jobs().keys() >= theirs[south], LIMIT)
    south.fires()
    north.server.start()
    theirs[north] |= north.send("after")
    wait_until(lambda: north.jobs().keys() >= theirs[north], LIMIT)
    north.fires()
    for shard in shards:
        assert shard.jobs().keys() == theirs[shard]  # nothing lost, nothing of the other's
    assert set(south.jobs().values()) == {1}
