"""Encryption is rolled out, and its key changed, under load, while processes are killed: nothing is lost or shown."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import dramatiq
import psutil
import pytest
import redis
from cryptography.fernet import Fernet

from fleet.broker import FleetBroker, keys
from fleet.payloads import PayloadEncoder, fingerprints
from fleet.workers.presence import present
from tests.security.processes import Processes, processes
from tests.waiting import wait_until

LIMIT = 60
K1, K2 = (Fernet.generate_key().decode() for _ in range(2))
STEPS: list[tuple[str, bool, str, bool]] = [
    # what workers know and whether they seal, then the same of who sends
    *[("", True, "", True), (K1, False, "", True), (K1, True, K1, True)],
    *[(f"{K1},{K2}", True, f"{K1},{K2}", True), (f"{K2},{K1}", True, f"{K2},{K1}", True), (K2, True, K2, True)],
]


class Sender:
    """Sends without a pause, by what this process's encoder is now."""

    def __init__(self, url: str, namespace: str) -> None:
        self.broker = FleetBroker(url=url, namespace=namespace, middleware=[])
        self._actors = [
            dramatiq.actor(lambda name: None, actor_name=name, queue_name="work", broker=self.broker)
            for name in ("did", "stumbles")
        ]
        self.sent: list[str] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stopped.wait(0.02):
            number = len(self.sent)
            actor, name = self._actors[number % 5 == 0], f"Erika-{number}"
            actor.send_with_options(args=(name,), **({"delay": 100} if number % 3 == 0 else {}))
            self.sent.append(f"{actor.actor_name} {name}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self.broker.client.close()


@pytest.fixture
def sender(redis_url: str, namespace: str) -> Iterator[Sender]:
    before = dramatiq.get_encoder()
    made = Sender(redis_url, namespace)
    yield made
    made.stop()
    dramatiq.set_encoder(before)


@pytest.fixture
def running(redis_url: str, namespace: str, tmp_path: Path) -> Iterator[Processes]:
    with processes(
        tmp_path, FLEET_REDIS_URL=redis_url, FLEET_NAMESPACE=namespace, TEST_JOURNAL=str(tmp_path / "journal")
    ) as made:
        yield made


def use(with_keys: str, seal: bool) -> None:
    known = [key for key in with_keys.split(",") if key]
    dramatiq.set_encoder(PayloadEncoder(lambda: known, lambda: seal))


def replace_worker(running: Processes, with_keys: str, seal: bool) -> None:
    """Start one with these settings; once it is ready the one before drains. One of its children is killed at once."""
    ready = running.said().count("worker_ready")
    settings = {"FLEET_PAYLOAD_SEAL": str(seal)} | ({"FLEET_PAYLOAD_KEYS": with_keys} if with_keys else {})
    started = running.start("work", "work", **settings)
    wait_until(lambda: running.said().count("worker_ready") >= ready + 2, LIMIT)
    for process, _ in running.started[:-1]:
        process.terminate()
        process.wait(LIMIT)
    with suppress(psutil.Error, IndexError):
        workers = [one for one in psutil.Process(started.pid).children() if "fleet.workers.child" in one.cmdline()]
        workers[0].send_signal(signal.SIGKILL)


def test_a_key_is_rolled_out_and_changed_under_load_and_nothing_is_lost(
    running: Processes, sender: Sender, redis_client: redis.Redis, namespace: str
) -> None:
    journal = Path(running.settings["TEST_JOURNAL"])

    def done() -> set[str]:
        return set(journal.read_text().splitlines()) if journal.exists() else set()

    sender.start()
    in_the_open: list[bytes] = []
    for number, (of_workers, they_seal, of_sender, it_seals) in enumerate(STEPS):
        if number == len(STEPS) - 1:  # the old key goes once nothing is left that it sealed
            since = len(sender.sent)
            wait_until(lambda since=since: set(sender.sent[:since]) <= done(), LIMIT)
        replace_worker(running, of_workers, they_seal)
        use(of_sender, it_seals)
        after = len(sender.sent)
        wait_until(lambda after=after: len(sender.sent) > after + 20, LIMIT)
        there = wait_until(lambda: redis_client.hvals(keys.bodies(namespace, "work")), LIMIT)
        in_the_open += [body for body in there if b"Erika" in body and number > 2]
        wait_until(lambda after=after: set(sender.sent[: after + 20]) <= done(), LIMIT)
    told = [one.payload_keys for one in present(redis_client, namespace) if one.kind == "supervisor"]
    assert told == [fingerprints([K2], seals=True)]
    sender.stop()
    wait_until(lambda: set(sender.sent) <= done(), LIMIT)
    assert in_the_open == []
    dead = redis_client.hgetall(keys.dead_details(namespace, "work"))
    assert dead == {} and len(sender.sent) > 120
    assert "PayloadSealed" not in running.said()
