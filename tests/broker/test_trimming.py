"""The janitor of dead letters says how many there are, and drops what no running lane has dropped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import MappingProxyType

import pytest

from fleet import janitor
from fleet.broker import keys
from fleet.broker.dead import letters
from fleet.broker.trimming import OldLetters
from fleet.catalogue import publish_catalogue
from fleet.declarations import DEAD_KEPT_FOR
from tests.broker.letters import fill
from tests.broker.station import QUEUE, Station

TOO_OLD = time.time() - DEAD_KEPT_FOR.total_seconds() - 3_600


@pytest.fixture
def station(redis_url: str, namespace: str) -> Iterator[Station]:
    """A queue that no lane serves, and that a worker published."""
    made = Station(redis_url, namespace)
    made.actor(lambda: None, actor_name="note")
    publish_catalogue(made.broker)
    yield made
    made.stop()


def left(station: Station) -> int:
    return len(list(letters(station.broker, [QUEUE])))


def test_letters_that_are_kept_are_counted_and_left(station: Station) -> None:
    fill(station.broker, 3, QUEUE)
    done = janitor.run("trim_dead_letters", [OldLetters(station.broker)])
    assert (done.verdict, done.scanned, done.stuck, done.recovered) == ("idle", 3, 0, 0)
    assert left(station) == 3


def test_old_letters_of_a_queue_that_no_lane_serves_are_dropped(station: Station) -> None:
    fill(station.broker, 5, QUEUE)
    fill(station.broker, 2, QUEUE, died=TOO_OLD)
    assert station.broker.lanes == MappingProxyType({})
    done = janitor.run("trim_dead_letters", [OldLetters(station.broker)])
    assert (done.verdict, done.scanned, done.stuck, done.recovered) == ("acted", 5, 2, 2)
    assert done.oldest is not None and done.oldest > DEAD_KEPT_FOR
    assert left(station) == 3


def test_more_letters_than_are_kept_are_stuck_whatever_their_age(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleet.broker.dead.DEAD_KEPT_MOST", 4)
    fill(station.broker, 7, QUEUE)
    done = janitor.run("trim_dead_letters", [OldLetters(station.broker)])
    assert (done.stuck, done.recovered, left(station)) == (3, 3, 4)


def test_a_letter_that_a_lane_has_not_had_time_to_drop_is_no_news(station: Station) -> None:
    fill(station.broker, 1, QUEUE, died=time.time() - DEAD_KEPT_FOR.total_seconds() - 30)
    assert OldLetters(station.broker).measure().stuck == 0


def test_a_preview_names_the_queue_and_drops_nothing(station: Station) -> None:
    fill(station.broker, 2, QUEUE, died=TOO_OLD)
    _, found = janitor.preview([OldLetters(station.broker)])
    (stuck,) = found
    assert stuck.subject == f"2 letters of {QUEUE}" and stuck.plan == "dropped: kept for 14 days, and 100,000 at most"
    assert station.broker.client.zcard(keys.dead(station.namespace, QUEUE)) == 2
