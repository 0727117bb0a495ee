"""One thread a worker process that speaks to Redis for all its queues: it ends messages and fetches more, in one turn.

A turn is one script call with a number. If its reply is lost the same turn is asked again under the same number, and
the script answers what it did the first time: nothing is ended twice and nothing fetched is stranded. What is held
stays held until the answer says that its end is written.

The pump takes a turn when a message ended or a queue may have something: a wake-up names the queue, a delay comes due,
or a few seconds have passed. Ends wait up to 5 ms for company while the threads have work, and not at all when they
starve.

A worker that was reaped meanwhile is told so (`fenced`): the pump drops what nobody started, takes a new id, and counts
the ends of what still runs as stale.

Not guaranteed: that an end is written when the process dies within those 5 ms. Its message is then delivered again.
"""

from __future__ import annotations

import math
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import redis

from fleet.broker.ends import End, Fetched
from fleet.broker.pace import Pace
from fleet.broker.turn import Turns
from fleet.clock import clock
from fleet.logs import get_logger

log = get_logger(__name__)

SAFETY_SECONDS = 3.0  # between two turns over all queues when nothing wakes the pump
_GATHER_SECONDS = 0.002  # for how long ends wait for company; with the turn under way, at most 5 ms late
_ENDS_A_TURN = 256
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # between two tries when Redis does not answer


class Pump(threading.Thread):
    """Turns until stopped; `deliver` gets what was fetched, `ended` each end: written (True) or stale (False)."""

    def __init__(
        self,
        client: redis.Redis,
        script: Callable[..., Any],
        turns: Turns,
        worker_id: str,
        queues: Sequence[str],
        *,
        pace: Pace,
        deliver: Callable[[list[Fetched]], None],
        ended: Callable[[End, bool], None],
        starving: Callable[[], bool],
        fenced: Callable[[str], None],
        take_back: Callable[[int], Sequence[Fetched]],
    ) -> None:
        super().__init__(name="pump", daemon=True)
        self._client, self._script, self._turns = client, script, turns
        self.worker_id, self._queues, self._pace = worker_id, list(queues), pace
        self._deliver, self._ended, self._starving, self._fenced = deliver, ended, starving, fenced
        self._take_back = take_back
        self._ends: deque[End] = deque()
        self._later: list[End] = []  # ends of broken queues, until the next look
        self._broken: set[str] = set()
        self._held = 0
        self._open: dict[tuple[str, int], Fetched] = {}  # what is held and has no end yet, by worker id and delivery
        self._dirty: set[str] = set(queues)
        self._stir = threading.Condition(threading.Lock())
        self._fetching, self._running = True, True
        self._look_at, self._due_at = 0.0, math.inf
        self._number, self._lost = 0, False
        self.turned_at = 0.0

    @property
    def held(self) -> int:
        """How many messages this process holds, ends that are not yet written included."""
        return self._held

    def end(self, end: End) -> None:
        """Have a message ended at the next turn; of two ends for one delivery the first counts."""
        with self._stir:
            if self._open.pop((end.worker, end.delivery), None) is not None:
                self._ends.append(end)
                self._stir.notify()

    def wake(self, queues: Iterable[str]) -> None:
        """Look at these queues at the next turn."""
        with self._stir:
            self._dirty.update(name for name in queues if name in self._queues)
            self._stir.notify()

    def serve(self, queue: str) -> None:
        """Fetch from this queue as well."""
        with self._stir:
            if queue not in self._queues:
                self._queues = [*self._queues, queue]
                self._dirty.add(queue)
                self._stir.notify()

    @property
    def queues(self) -> list[str]:
        """What it fetches from, in the order of its next turn."""
        return self._queues

    def wake_all(self) -> None:
        """Look at every queue at the next turn."""
        self.wake(self._queues)

    def fetch(self, on: bool) -> None:
        """Go on or leave off fetching; ends are written either way."""
        with self._stir:
            self._fetching = on
            self._dirty.update(self._queues if on else ())
            self._stir.notify()

    def hand_back_all(self) -> list[Fetched]:
        """Have everything that has no end yet returned, running or not; for a process that ends. What that was."""
        with self._stir:
            left = sorted(self._open.values(), key=lambda one: one.delivery, reverse=True)
        for one in left:
            self.end(one.end("back"))
        return left

    def stop(self) -> None:
        """Write the ends that are there, and stop."""
        with self._stir:
            self._running = False
            self._fetching = False
            self._stir.notify()

    def run(self) -> None:
        while True:
            with self._stir:
                self._wait()
                if not self._running and not self._ends:
                    return
            self._hand_back_excess()
            if self._ends and not self._starving() and len(self._ends) < _ENDS_A_TURN:
                threading.Event().wait(_GATHER_SECONDS)
            self._turn()

    def _wait(self) -> None:
        """Sleep until there is something to do. Called under the lock."""
        while self._running and not self._ends and not (self._fetching and self._room() and self._dirty):
            now = clock.monotonic()
            if self._pace.slow_at(self._held) <= now:
                return
            left = min(self._look_at, self._due_at) - now
            if left <= 0:
                self._look_at = clock.monotonic() + SAFETY_SECONDS
                self._due_at = math.inf
                self._dirty.update(self._queues)
                self._ends.extend(self._later)
                self._later.clear()
                return  # also where nothing can be fetched now: a turn is a beat
            self._stir.wait(min(left, self._pace.slow_at(self._held) - now))

    def _room(self) -> int:
        return max(0, self._pace.room - self._held + len(self._ends))

    def _hand_back_excess(self) -> None:
        """Return what no thread has started and other processes may be free for."""
        with self._stir:
            excess = self._pace.excess(self._held - len(self._ends), clock.monotonic())
        for one in reversed(self._take_back(excess) if excess else ()):
            self.end(one.end("back"))

    def _turn(self) -> None:
        with self._stir:
            ends = [self._ends.popleft() for _ in range(min(len(self._ends), _ENDS_A_TURN))]
            self._pace.ended(sum(end.kind != "back" for end in ends), clock.monotonic())
            wanted = max(0, self._pace.room - self._held + len(ends)) if self._fetching else 0
            looked_at = [name for name in self._queues if name in self._dirty] if wanted else []
            # The rotation: the next turn begins with another queue. A queue is cleared before it is looked at.
            self._queues = self._queues[1:] + self._queues[:1]
            self._dirty -= set(looked_at)
        for end in ends:
            if end.worker != self.worker_id:
                self._let_go(end, False)
        ends = [end for end in ends if end.worker == self.worker_id]
        unsettled = deque(ends)
        try:
            self._exchange(looked_at, wanted, ends, unsettled)
        except Exception:
            # A pump that died would leave a process that beats, holds messages and never ends them. Under a new id its
            # old one falls silent, and a reaper returns what it held.
            log.exception("turn_broke", worker=self.worker_id)
            self._start_anew(unsettled)

    def _exchange(self, looked_at: list[str], wanted: int, ends: list[End], unsettled: deque[End]) -> None:
        names = [*looked_at, *dict.fromkeys(end.queue for end in ends if end.queue not in looked_at)]
        self._number += 1
        answer = self._ask(names, wanted if looked_at else 0, len(looked_at), ends)
        if answer is not None:
            self._take(answer, names, looked_at, unsettled, wanted)
        else:
            self._start_anew(unsettled)

    def _take(
        self, answer: list[bytes], names: list[str], looked_at: list[str], unsettled: deque[End], wanted: int
    ) -> None:
        told = self._turns.read(self.worker_id, names, answer)
        fetched = told.fetched
        self._say_broken(told.broken, looked_at)
        for flag in told.flags:
            if flag == "e":
                self._later.append(unsettled.popleft())
            else:
                self._let_go(unsettled.popleft(), flag == "1")
        self.turned_at = clock.monotonic()
        with self._stir:
            self._held += len(fetched)
            self._open.update({(one.worker, one.delivery): one for one in fetched})
            fetching = self._fetching
            if wanted and len(fetched) == wanted:  # there may be more in any of them
                self._dirty.update(name for name in looked_at if name not in self._broken)
            if told.due is not None:
                self._due_at = min(self._due_at, self.turned_at + told.due)
            if len(looked_at) == len(self._queues):
                self._look_at = self.turned_at + SAFETY_SECONDS
        if fetching:
            self._deliver(fetched)
        else:  # told to leave off while this turn was under way
            for one in reversed(fetched):
                self.end(one.end("back"))

    def _let_go(self, end: End, written: bool) -> None:
        with self._stir:
            self._held -= 1
        self._ended(end, written)

    def _ask(self, names: list[str], wanted: int, looked_at: int, ends: list[End]) -> list[bytes] | None:
        """One turn, asked under one number until Redis answers it; None if this worker was reaped."""
        asked_keys, args = self._turns.ask(self.worker_id, self._number, wanted, names, looked_at, self._queues, ends)
        pause = _FIRST_PAUSE
        while True:
            try:
                answer = self._script(keys=asked_keys, args=args, client=self._client)
            except redis.RedisError as error:
                self._say_lost(error)
                threading.Event().wait(pause)
                pause = min(_LONGEST_PAUSE, pause * 2)
                continue
            self._say_back()
            if answer == b"fenced":
                return None
            if answer == b"old":
                raise RuntimeError(f"turn {self._number} of {self.worker_id}: another process uses this worker's id")
            return list(answer)

    def _start_anew(self, ends: deque[End]) -> None:
        """This worker was reaped, or will be: its messages are others' now, whatever still runs here."""
        old, self.worker_id = self.worker_id, str(uuid.uuid4())
        self._number = 0
        log.warning("worker_fenced", worker=old, goes_on_as=self.worker_id, held=self._held)
        ends.extend(self._later)
        self._later.clear()
        while ends:
            self._let_go(ends.popleft(), False)
        self._fenced(self.worker_id)
        self.wake_all()

    def forget(self, dropped: Iterable[Fetched]) -> None:
        """These, which nobody started, are no longer this process's to end."""
        with self._stir:
            for one in dropped:
                if self._open.pop((one.worker, one.delivery), None) is not None:
                    self._held -= 1

    def _say_broken(self, found: dict[str, str], looked_at: list[str]) -> None:
        """Once a queue, and once when a later look finds it whole."""
        for queue, error in found.items():
            if queue not in self._broken:
                log.error("queue_broken", queue=queue, error=error, looked_at_again_in=f"{SAFETY_SECONDS:g}s")
        for queue in self._broken.intersection(looked_at) - found.keys():
            log.warning("queue_mended", queue=queue)
        self._broken = self._broken.difference(looked_at).union(found)

    def _say_lost(self, error: redis.RedisError) -> None:
        if not self._lost:
            log.error("redis_lost", worker=self.worker_id, error=str(error))
        self._lost = True

    def _say_back(self) -> None:
        if self._lost:
            log.warning("redis_back", worker=self.worker_id)
        self._lost = False
