"""One budget of places shared by every process on every host: how many calls may be at a provider at once.

People come first. Whoever calls for a person is always granted a place and counted; batch gets one only while people
and batch together hold less than `places - reserve`, and asks *before* it calls. So `reserve` places are free for the
people who come while batch's calls run, and a person never waits for batch. Who is people is declared once, beside the
queue (`Lane.people`), since every call of a queue's jobs is waited for by the same somebody.

A place is a lease of 30 real seconds in Redis, by the server's clock (a host's own does not matter), renewed by a
thread of the process that holds it: a holder that is killed gives its places back when they lapse. A job that is cut
off may leak its place (see `fleet.deadline`); it is no longer renewed after `LONGEST`, or when its process ends.

Not guaranteed: that the provider is never asked more than `places` times at once. People beyond the reserve are not
turned away, a process that stands still for longer than a lease loses its place while its call may go on (it is counted
again when the process wakes), and while Redis does not answer people call uncounted and batch gets no place.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

import redis

from fleet import deadline, wire
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.errors import DeclarationInvalid, NotDeclared, RetryLater
from fleet.logs import get_logger
from fleet.reasons import reason_says_something

log = get_logger(__name__)

LEASE = timedelta(seconds=30)  # real: how long a killed holder's places are missed
LONGEST = timedelta(minutes=30)  # real: longer than any call; a place held for longer has leaked
ASK_AGAIN = timedelta(seconds=30)  # a night duration: a model's usual answer takes a few seconds
_RENEWALS_A_LEASE = 3
_SCRIPT = (Path(__file__).parent / "quota.lua").read_text()

Holder = Literal["people", "batch"]


@dataclass(frozen=True)
class Quota:
    """How many calls may be under way at once, and how many of these places batch leaves free for people, and why.

    Raises `DeclarationInvalid` if batch could never get a place, or the reason is empty or only restates a number.
    """

    name: str
    places: int
    reserve: int
    because: str

    def __post_init__(self) -> None:
        if not 0 <= self.reserve < self.places:
            raise DeclarationInvalid(
                f"Quota({self.name!r}, places={self.places}, reserve={self.reserve}): give at least one place, and a "
                f"reserve that leaves batch one."
            )
        if not reason_says_something(self.because):
            raise DeclarationInvalid(f"Quota({self.name!r}, because={self.because!r}): say where the numbers are from.")


class NoPlace(RetryLater):
    """Raised when batch finds no place in a quota; it hands back what it wanted to call for.

    Its key is batch's alone: nobody else is parked, and a job that is tried again uses up no attempt.
    """

    def __init__(self, quota: Quota, people: int, batch: int) -> None:
        super().__init__(
            f"quota {quota.name}: people hold {people} and batch {batch} of {quota.places} places, and {quota.reserve} "
            f"are kept for people; ask again in {ASK_AGAIN}",
            ASK_AGAIN,
            key=f"quota {quota.name} for batch",
        )


@dataclass(frozen=True)
class Usage:
    """How many places are held now, by whom."""

    people: int
    batch: int


def declared(name: str) -> bool:
    """Whether the loaded application declares this quota."""
    return name in _process_broker().quotas


def usage(broker: FleetBroker, quota: Quota, client: redis.Redis | None = None) -> Usage:
    """What is held now; one round trip, over `client` if given."""
    _, people, batch = _over(client or broker.client, broker, quota, "count")
    return Usage(people, batch)


def for_people() -> bool:
    """Whether somebody waits for what this thread does: its job's queue says so; outside of a job, whoever called."""
    from fleet.actor import current_message

    message = current_message()
    if message is None:
        return True
    lane = _process_broker().lanes.get(message.queue_name)
    return lane is not None and message.queue_name in lane.people


@contextmanager
def place(name: str, *, people: bool) -> Iterator[None]:
    """Hold one place of a quota for a call.

    Raises `NoPlace` where batch gets none, `NotDeclared` for a quota that no `config/quotas.py` declares.
    """
    broker = _process_broker()
    if name not in broker.quotas:
        raise NotDeclared("quota", name, broker.quotas)
    quota, held = broker.quotas[name], f"{os.getpid()}-{uuid.uuid4()}"
    holder: Holder = "people" if people else "batch"
    try:
        with deadline.shielded():
            _take(broker, quota, holder, held)
        yield
    finally:
        with deadline.shielded():
            _give_back(broker, quota, held)


def _process_broker() -> FleetBroker:
    from fleet.app import process_broker  # which loads what is declared here

    return process_broker()


def _take(broker: FleetBroker, quota: Quota, holder: Holder, held: str) -> None:
    try:
        granted, people, batch = _call(broker, quota, "take", holder, held)
    except redis.RedisError as error:
        log.warning("quota_unanswered", quota=quota.name, holder=holder, error=repr(error))
        if holder == "batch":
            raise NoPlace(quota, 0, 0) from error
        granted = 1
    if not granted:
        raise NoPlace(quota, people, batch)
    _holding.add(broker, quota, holder, held)


def _give_back(broker: FleetBroker, quota: Quota, held: str) -> None:
    """Not granted, it is nobody's; a reply that was lost may have been a grant."""
    _holding.drop(held)
    _free(broker, quota, held)


def _free(broker: FleetBroker, quota: Quota, held: str) -> None:
    try:
        _call(broker, quota, "free", held)
    except Exception as error:  # its lease lapses; whoever called, or renews, goes on
        log.warning("quota_unanswered", quota=quota.name, error=repr(error))


def _call(broker: FleetBroker, quota: Quota, verb: str, *more: str) -> tuple[int, int, int]:
    return _over(broker.client, broker, quota, verb, *more)


def _over(client: redis.Redis, broker: FleetBroker, quota: Quota, verb: str, *more: str) -> tuple[int, int, int]:
    ns, lease = broker.namespace, wire.duration_ms(LEASE)
    of = [keys.quota(ns, quota.name, "people"), keys.quota(ns, quota.name, "batch")]
    script = client.register_script(_SCRIPT)
    granted, people, batch = script(keys=of, args=[verb, lease, quota.places, quota.reserve, *more])
    return int(granted), int(people), int(batch)


@dataclass(frozen=True)
class _Held:
    broker: FleetBroker
    quota: Quota
    holder: Holder
    since: float


class _Holding:
    """The places of this process, and the thread that renews them for as long as there are any."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """As a forked process has to: places, and the thread, are its parent's."""
        self._lock = threading.RLock()  # a place that is collected as garbage under it is given back there
        self._held: dict[str, _Held] = {}
        self._renews = False

    def add(self, broker: FleetBroker, quota: Quota, holder: Holder, held: str) -> None:
        with self._lock:
            self._held[held] = _Held(broker, quota, holder, clock.monotonic())
            if not self._renews:
                threading.Thread(target=self._renew, name="quota", daemon=True).start()
                self._renews = True  # behind its start: one that could not be started is tried again at the next place

    def drop(self, held: str) -> None:
        with self._lock:
            self._held.pop(held, None)

    def _renew(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(LEASE.total_seconds() / _RENEWALS_A_LEASE)
            with self._lock:
                if not self._held:
                    self._renews = False
                    return
                now = clock.monotonic()
                for held, one in list(self._held.items()):
                    if now - one.since > LONGEST.total_seconds():
                        self.drop(held)
                        log.warning("quota_place_leaked", quota=one.quota.name)
                of_quota: dict[tuple[FleetBroker, Quota], list[str]] = {}
                for held, one in list(self._held.items()):
                    of_quota.setdefault((one.broker, one.quota), []).extend((one.holder, held))
            for (broker, quota), places in of_quota.items():
                self._keep(broker, quota, places)

    def _keep(self, broker: FleetBroker, quota: Quota, places: Sequence[str]) -> None:
        """Renew places, given as holder and id in turn; one that was given back meanwhile is not held again."""
        try:
            _call(broker, quota, "keep", *places)
        except Exception as error:  # nobody else renews: the next turn may go well, whatever it was
            log.warning("quota_unanswered", quota=quota.name, error=repr(error))
        with self._lock:
            over = [held for held in places[1::2] if held not in self._held]
        for held in over:
            _free(broker, quota, held)


_holding = _Holding()  # made here: two threads that hold their first places at once would make one each
os.register_at_fork(after_in_child=_holding.begin_anew)
