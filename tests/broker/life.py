"""The whole life of messages at one station: whatever the connection, all of it has to work."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from fleet import parking, probe
from fleet.broker import dead
from fleet.catalogue import read_catalogue
from fleet.workers.presence import Presence, Report, present
from tests.broker.station import QUEUE, Station
from tests.broker.turns import Turns
from tests.waiting import wait_until

AT_ONCE = 1.0  # seconds: a worker that is not woken looks only after three


def live(station: Station) -> None:
    """Send, wake, delay, retry, dead letter, requeue, discard, reap, and the reads of `fleet status`."""
    ran = Counter[str]()

    def note(name: str) -> None:
        ran[name] += 1

    def fail(name: str, times: int) -> None:
        ran[name] += 1
        if ran[name] <= times:
            raise ValueError(name)

    noted, retried = station.actor(note, actor_name="note"), station.actor(fail, actor_name="retried")
    doomed = station.actor(fail, actor_name="doomed", max_retries=0)
    broker = station.broker
    gone = Turns(broker.client, broker.own_scripts, station.namespace, "gone")
    noted.send("reaped")
    assert gone.take(1)  # and is never heard of again
    station.work()
    noted.send("first")
    wait_until(lambda: ran["first"])
    noted.send("woken")
    wait_until(lambda: ran["woken"], AT_ONCE)
    noted.send_with_options(args=("delayed",), delay=50)
    retried.send("retried", 1)
    doomed.send("requeued", 1)
    doomed.send("discarded", 9)
    wait_until(lambda: ran["delayed"] and ran["retried"] == 2 and len(station.letters()) == 2)
    [again, no_more] = sorted(dead.letters(broker, [QUEUE]), key=lambda letter: str(letter.message), reverse=True)
    assert list(dead.requeue(broker, [again.place], a_second=1_000)) == ["moved"]
    wait_until(lambda: ran["requeued"] == 2, AT_ONCE)
    assert sum(dead.discard(broker, [no_more.place])) == 1
    assert dead.trim(broker, QUEUE) == 0
    wait_until(lambda: ran["reaped"])
    _read(station)
    station.until_empty()
    assert ran == {
        "first": 1, "woken": 1, "delayed": 1, "retried": 2, "requeued": 2, "discarded": 1, "reaped": 1
    }  # fmt: skip


def _read(station: Station) -> None:
    broker = station.broker
    presence = Presence(broker.client, station.namespace, lambda: Report("worker", "a lane"))
    presence.start()
    wait_until(lambda: [report.name for report in present(broker.client, station.namespace)] == ["a lane"])
    presence.stop()
    parking.park(broker, "bank", timedelta(seconds=1))
    parking.park(broker, "bank", timedelta(seconds=5))
    assert broker.client.pttl(f"{station.namespace}:fleet:parked:bank") > 1_000
    assert set(read_catalogue(broker)) >= {"note", "doomed"}
    assert probe.read(broker, [QUEUE])[0].dead == 0
