"""Dead letters say why, and can be found, queued again, discarded and trimmed; from the command line, too."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import dramatiq
import pytest
from dramatiq.middleware import Retries
from typer.testing import CliRunner

from fleet import cli_dead
from fleet.broker import FleetBroker, keys
from fleet.broker.dead import Filter, discard, letters, requeue, trim
from fleet.workers.worker import FleetWorker
from tests.waiting import wait_until


class House:
    """A worker whose actor `fail` fails at once as long as `broken` is true."""

    def __init__(self, broker: FleetBroker) -> None:
        self.broker, self.broken, self.ran = broker, True, list[int]()

        @dramatiq.actor(broker=broker, max_retries=0, queue_name="work")
        def fail(number: int) -> None:
            if self.broken:
                raise ValueError(f"no. {number} is broken")
            self.ran.append(number)

        self.fail = fail
        self.worker = FleetWorker(broker, worker_threads=1)
        self.worker.start()

    def die(self, *numbers: int) -> None:
        before = len(list(letters(self.broker, ["work"])))
        for number in numbers:
            self.fail.send(number)
        wait_until(lambda: len(list(letters(self.broker, ["work"]))) == before + len(numbers))


@pytest.fixture
def house(redis_url: str, namespace: str) -> Iterator[House]:
    made = House(FleetBroker(url=redis_url, namespace=namespace, middleware=[Retries()]))
    yield made
    made.worker.stop()


def test_a_letter_says_what_was_raised_where_and_after_how_many_attempts(house: House) -> None:
    house.die(7)
    (letter,) = letters(house.broker, ["work"])
    assert (letter.actor, letter.reason, letter.details["attempts"]) == ("fail", "failed", 1)
    assert letter.exception == "ValueError('no. 7 is broken')"
    assert "in fail" in letter.details["traceback"]
    assert letter.details["worker"] == house.worker.pump.worker_id


def test_letters_are_filtered_by_actor_reason_age_and_argument(house: House) -> None:
    house.die(1, 22, 3)

    def found(which: Filter) -> list[int]:
        return [letter.message.args[0] for letter in letters(house.broker, ["work"], which) if letter.message]

    assert found(Filter(argument="22")) == [22]
    assert sorted(found(Filter(actor="fail", reason="failed"))) == [1, 3, 22]
    assert found(Filter(reason="deadline")) == []
    assert found(Filter(older_than=timedelta(hours=1))) == []


def test_a_letter_that_is_queued_again_runs_as_if_it_were_new(house: House) -> None:
    house.die(1, 2)
    house.broken = False
    assert requeue(house.broker, list(letters(house.broker, ["work"])), a_second=1_000) == 2
    wait_until(lambda: sorted(house.ran) == [1, 2])
    assert list(letters(house.broker, ["work"])) == []


def test_what_was_discarded_is_gone_and_is_discarded_once(house: House) -> None:
    house.die(1)
    chosen = list(letters(house.broker, ["work"]))
    assert (discard(house.broker, chosen), discard(house.broker, chosen)) == (1, 0)
    ns = house.broker.namespace
    assert house.broker.client.exists(keys.dead_bodies(ns, "work"), keys.dead_details(ns, "work")) == 0


def test_too_many_and_too_old_letters_are_trimmed_oldest_first(house: House) -> None:
    house.die(1)
    house.die(2)
    house.die(3)
    assert trim(house.broker, "work", kept_most=2) == 1
    assert [letter.message.args for letter in letters(house.broker, ["work"]) if letter.message] == [(2,), (3,)]
    assert trim(house.broker, "work", kept_for=timedelta(0)) == 2


def test_the_command_line_shows_first_and_acts_only_when_told(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.die(1, 2)
    house.broken = False
    monkeypatch.setattr(cli_dead, "process_broker", lambda: house.broker)
    app: Any = SimpleNamespace(lanes=[SimpleNamespace(queues=("work",))], actor=lambda name: None)

    def run(*words: str) -> Any:
        return CliRunner().invoke(cli_dead.commands(lambda: app), list(words))

    assert "2 dead letters" in run("list").output
    assert "2 letters would be queued again" in run("requeue").output
    assert house.ran == []
    assert "1 of 1 queued again" in run("requeue", "--argument", "2", "--yes").output
    wait_until(lambda: house.ran == [2])
    assert "1 of 1 dropped" in run("discard", "--yes").output
