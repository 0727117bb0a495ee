"""Three beats under a thousand faults: no slot is sent twice, each stands in the ledger once, and no process exits.

What was sent is counted at the queue, by a script of the test's own that takes messages away as a worker would. Clock
skew is a wall clock of each replica's own, moved in steps of up to 5 s; the scripts go by the server's.
"""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from fleet.broker import keys
from tests.beat.replicas import Beats, Replica
from tests.broker.conftest import OwnRedis
from tests.broker.proxy import Proxy
from tests.chaos.workers.conftest import die, say  # noqa: F401 (fixtures)
from tests.waiting import wait_until

NAMESPACE, REPLICAS, RATE = "faults", 3, 4.0
TTL, RENEWAL = 1.5, 0.4  # seconds; as short as the margin allows, so that many terms fit
ORIGIN = datetime(2026, 3, 28, 22, 0, tzinfo=UTC)  # before a change of clocks
EVERY_SECOND, SKIPPING = 24, 2
SCHEDULE = f"""
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
import apscheduler.schedulers.base as scheduler
from fleet import All, Entry
from fleet.clock import Clock

second = timedelta(seconds=1)
because = "the test counts each of its slots"
catch_up = ["latest", "none", All(3)]
SCHEDULE = [
    *(Entry(f"tick{{n}}", actor="tick", every=second, expires=(n % 5 + 2) * second, catch_up=catch_up[n % 3],
            because=because) for n in range({EVERY_SECOND})),
    *(Entry(f"skip{{n}}", actor="tick", every=second, expires=9 * second, overlap="skip", because=because)
      for n in range({SKIPPING})),
    Entry("minute", actor="tick", cron="* * * * *", expires=59 * second, tz="Europe/Berlin", because=because),
]
hand = Path(os.environ["WALL_CLOCK"])

def wall(*_):
    return datetime.now(UTC) + timedelta(seconds=float(hand.read_text()))

class Hands:
    now = staticmethod(wall)

Clock.real_now, scheduler.datetime = wall, Hands
"""
SECONDS_OF = {f"tick{n}": 1 for n in range(EVERY_SECOND)} | {f"skip{n}": 1 for n in range(SKIPPING)} | {"minute": 60}
# Takes what waits away, as a worker would, and keeps it where a Redis that restarts cannot lose it.
_TAKE = """
local ids = redis.call("LPOP", KEYS[1], 1000) or {}
for _, id in ipairs(ids) do
    redis.call("RPUSH", KEYS[3], id, redis.call("HGET", KEYS[2], id) or "")
    redis.call("HDEL", KEYS[2], id)
end
return #ids
"""


class Stand:
    """A replica, its proxy, its wall clock, and what befalls them. A replica that ended unbidden is noted."""

    def __init__(self, name: str, beats: Beats, server: OwnRedis, folder: Path) -> None:
        self._beats, self._hand = beats, folder / f"wall-{name}"
        self.proxy = Proxy(server.url)
        self.proxy.__enter__()
        self.exits: list[int] = []
        self.move_clock(0)
        self.replica = self._start()

    def _start(self) -> Replica:
        self._beats.environment |= {"FLEET_REDIS_URL": self.proxy.url, "WALL_CLOCK": str(self._hand)}
        self._beats.start(1)
        return self._beats.replicas[-1]

    def move_clock(self, by: float) -> None:
        fresh = self._hand.with_suffix(".next")
        fresh.write_text(str(by))
        fresh.replace(self._hand)

    def look(self) -> None:
        ended = self.replica.process.poll()
        if ended is not None:
            self.exits.append(ended)
            self.replica = self._start()

    def kill(self, dice: random.Random) -> None:
        self.replica.process.kill()
        self.replica.process.wait()
        self.replica = self._start()

    def stop_and_go_on(self, dice: random.Random) -> None:
        self.replica.process.send_signal(signal.SIGSTOP)
        time.sleep(dice.uniform(0.1, 2 * TTL))
        self.replica.process.send_signal(signal.SIGCONT)

    def hold_back(self, dice: random.Random) -> None:
        self.proxy.hold_back(dice.choice([0.3, TTL + 0.2]))

    def cut(self, dice: random.Random) -> None:
        self.proxy.cut()

    def go_silent(self, dice: random.Random) -> None:
        self.proxy.silent = True
        time.sleep(dice.uniform(0.2, 2 * TTL))
        self.proxy.silent = False
        self.proxy.cut()

    def delay(self, dice: random.Random) -> None:
        self.proxy.delay = dice.uniform(0.05, 0.4)
        time.sleep(dice.uniform(0.2, 1))
        self.proxy.delay = 0.0

    def lose_reply(self, dice: random.Random) -> None:
        self.proxy.lose_reply(dice.randrange(1, 6))

    def lose_request(self, dice: random.Random) -> None:
        self.proxy.lose_request(dice.randrange(1, 6))

    def skew(self, dice: random.Random) -> None:
        self.move_clock(dice.uniform(-5, 5))

    def calm(self) -> None:
        self.proxy.silent, self.proxy.delay = False, 0.0
        self.proxy.lose_reply(0)
        self.proxy.lose_request(0)
        self.proxy.hold_back(0)
        self.move_clock(0)
        self.look()


FAULTS: tuple[Callable[[Stand, random.Random], None], ...] = (
    *(Stand.kill, Stand.stop_and_go_on, Stand.hold_back, Stand.cut, Stand.go_silent, Stand.delay),
    *(Stand.lose_reply, Stand.lose_reply, Stand.lose_request, Stand.skew),
)


class Ordeal:
    """Replicas under faults, and a taker of messages beside them."""

    def __init__(self, server: OwnRedis, folder: Path, seed: int) -> None:
        self.server, self._seed = server, seed
        self.client = server.client
        now = datetime.now(UTC)
        terms = {"FLEET_LEADER_TTL": f"{TTL}s", "FLEET_LEADER_RENEWAL": f"{RENEWAL}s"}
        night = {"ORIGIN": ORIGIN.isoformat(), "ANCHOR": now.isoformat(), "RATE": str(RATE)}
        played = {f"FLEET_CLOCK_{name}": value for name, value in night.items()}
        self.beats = Beats(folder, server.url, NAMESPACE, SCHEDULE, **terms, **played)
        self.stands = [Stand(str(number), self.beats, server, folder) for number in range(REPLICAS)]
        self.faults: Counter[str] = Counter()
        self._over = threading.Event()
        self._taker = threading.Thread(target=self._take, daemon=True)

    def begin(self) -> None:
        """Without a fault, until every entry is known."""
        self._taker.start()
        wait_until(lambda: len(self.client.hkeys(keys.marks(NAMESPACE))) == len(SECONDS_OF), 60)

    def suffer(self, most: int) -> None:
        """So many faults, each replica's one after the other, and of the server one in a hundred."""
        left = iter(range(most))
        threads = [threading.Thread(target=self._faults, args=(stand, left, n)) for n, stand in enumerate(self.stands)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for stand in self.stands:
            stand.calm()

    def _faults(self, stand: Stand, left: Iterator[int], number: int) -> None:
        dice = random.Random(self._seed * 10 + number)
        for place in left:
            stand.look()
            if place % 100 == 50:
                self.faults["restart Redis"] += 1
                self.server.kill()
                self.server.start()
                continue
            fault = dice.choice(FAULTS)
            self.faults[fault.__name__] += 1
            fault(stand, dice)
            time.sleep(dice.uniform(0, 0.8))

    def settle(self) -> None:
        """Until every entry has its verdicts up to some time after the faults; then nothing moves any more."""
        night = ORIGIN + (datetime.now(UTC) - datetime.fromisoformat(self._anchor)) * RATE + timedelta(seconds=10)
        until = int(night.timestamp() * 1000)

        def followed() -> bool:
            marks = {name.decode(): int(mark) for name, mark in self.client.hgetall(keys.marks(NAMESPACE)).items()}
            return all(marks[name] >= until for name, seconds in SECONDS_OF.items() if seconds == 1)

        wait_until(followed, 60)
        for stand in self.stands:
            stand.look()
        self.beats.freeze()
        wait_until(lambda: self.client.llen(keys.queue(NAMESPACE, "ticks")) == 0)
        self._over.set()
        self._taker.join()

    @property
    def _anchor(self) -> str:
        return self.beats.environment["FLEET_CLOCK_ANCHOR"]

    def _take(self) -> None:
        places = [keys.queue(NAMESPACE, "ticks"), keys.bodies(NAMESPACE, "ticks"), "taken"]
        while not self._over.wait(0.01):
            with suppress(redis.RedisError):
                self.client.eval(_TAKE, len(places), *places)

    def messages(self) -> Counter[tuple[str, int]]:
        """How often each (entry, slot) was sent."""
        taken = self.client.lrange("taken", 0, -1)
        options = [json.loads(body)["options"] for body in taken[1::2]]
        return Counter((told["entry"], told["slot"]) for told in options)

    def verdicts(self, entry: str) -> list[tuple[str, int]]:
        """Each slot that has a verdict, as often as it has one; slots in milliseconds, oldest first."""
        apart = SECONDS_OF[entry] * 1000
        found = []
        lines: Any = self.client.xrange(keys.ledger(NAMESPACE, entry))
        for _, line in lines:
            if line[b"verdict"] != b"new":
                slots = range(int(line[b"from"]), int(line[b"to"]) + 1, apart)
                assert len(slots) == int(line[b"count"]), line
                found += [(line[b"verdict"].decode(), slot) for slot in slots]
        return found

    def close(self) -> None:
        self._over.set()
        for stand in self.stands:
            if stand.replica.process.poll() is None:
                stand.replica.process.send_signal(signal.SIGCONT)
        self.beats.stop()
        for stand in self.stands:
            stand.proxy.__exit__()
        self.client.close()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("faults", "slots"), [pytest.param(60, 1_000, id="short"), pytest.param(1_000, 10_000, marks=pytest.mark.soak)]
)
def test_no_slot_is_sent_twice_and_each_stands_in_the_ledger_once_whatever_befalls_three_beats(
    faults: int,
    slots: int,
    tmp_path: Path,
    die: random.Random,  # noqa: F811
    say: Callable[[str], None],  # noqa: F811
) -> None:
    server = OwnRedis(tmp_path)
    server.start()
    ordeal = Ordeal(server, tmp_path, die.randrange(1_000_000))
    try:
        ordeal.begin()
        ordeal.suffer(faults)
        ordeal.settle()
        sent = ordeal.messages()
        judged = {entry: ordeal.verdicts(entry) for entry in SECONDS_OF}
    finally:
        ordeal.close()
        server.stop()
    counted = Counter(verdict for lines in judged.values() for verdict, _ in lines)
    say(f"{sum(counted.values())} slots: {dict(counted)}; {sum(ordeal.faults.values())} faults: {dict(ordeal.faults)}")
    assert [key for key, count in sent.items() if count > 1] == [], "sent twice"
    for entry, lines in judged.items():
        apart = SECONDS_OF[entry] * 1000
        seen = [slot for _, slot in lines]
        assert seen == list(range(seen[0], seen[-1] + 1, apart)), f"{entry}: a slot without a verdict, or with two"
        fired = {slot for verdict, slot in lines if verdict == "fired"}
        assert fired == {slot for name, slot in sent if name == entry}, f"{entry}: the ledger and the queue differ"
        assert fired, f"{entry} was never sent"
    assert [stand.exits for stand in ordeal.stands] == [[]] * REPLICAS, "a replica ended by itself"
    assert sum(counted.values()) >= slots
    assert sum(ordeal.faults.values()) == faults
