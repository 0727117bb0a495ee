"""One thread a worker process that speaks to Redis for all its queues: it ends messages and fetches more, in one turn.

A turn is one script call with a number. If its reply is lost the same turn is asked again under the same number, and
the script answers what it did the first time: nothing is ended twice and nothing fetched is stranded. What is held
stays held until the answer says that its end is written.

The pump takes a turn when a message ended or a queue may have something: a wake-up names the queue, a delay comes due,
or a few seconds have passed. Where it sleeps, the thread that hears the wake-up takes the turn in its place: one thread
less to wake on the way from `send` to the start. Ends wait up to 5 ms for company while the threads have work, and not
at all when they starve.

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
from fleet.broker.order import Order
from fleet.broker.outages import Outages, Refused
from fleet.broker.pace import Pace
from fleet.broker.turn import Turn, Turns
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
        order: Order,
        deliver: Callable[[list[Fetched]], None],
        ended: Callable[[End, bool], None],
        starving: Callable[[], bool],
        fenced: Callable[[str], None],
        take_back: Callable[[int], Sequence[Fetched]],
    ) -> None:
        super().__init__(name="pump", daemon=True)
        self._client, self._script, self._turns, self._take_back = client, script, turns, take_back
        self.worker_id, self._queues, self._pace, self._order = worker_id, list(queues), pace, order
        self._deliver, self._ended, self._starving, self._fenced = deliver, ended, starving, fenced
        self._ends: deque[End] = deque()
        self._outages, self._later = Outages(), Refused()  # later: at the next look
        self._open: dict[tuple[str, int], Fetched] = {}  # what is held and has no end yet, by worker id and delivery
        self._dirty: set[str] = set(queues)
        self._stir = threading.Condition(threading.Lock())
        self._fetching, self._running = True, True
        self._look_at, self._due_at, self._number, self._held = 0.0, math.inf, 0, 0
        self._turning = threading.Lock()  # held while a turn is under way; taken before `_stir`, never after it
        self._unanswered: Turn | None = None
        self._sleeps_until = self.turned_at = 0.0

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
        """Look at these queues: here and now if nobody else takes a turn, at the next one otherwise."""
        with self._stir:
            self._dirty.update(name for name in queues if name in self._queues)
        if self._turning.acquire(blocking=False):
            try:
                with self._stir:  # under both locks: a pump that stopped has its last turn behind it
                    wanted = self._may_fetch() and not self._ends and self._unanswered is None
                if wanted:
                    self._turn()
            finally:
                self._turning.release()
        with self._stir:
            if not self._idle() or self._next_at() < self._sleeps_until:
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
        with self._stir:
            self._dirty.update(self._queues)
            self._stir.notify()

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
            self._running = self._fetching = False
            self._stir.notify()

    def run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._is_over():
            self._hand_back_excess()
            if self._ends and not self._starving() and len(self._ends) < _ENDS_A_TURN:
                threading.Event().wait(_GATHER_SECONDS)
            with self._turning:
                answered = self._turn()
            if not answered:
                threading.Event().wait(pause)
            pause = _FIRST_PAUSE if answered else min(_LONGEST_PAUSE, pause * 2)

    def _is_over(self) -> bool:
        """Sleep until there is something to do; True if there never will be."""
        with self._stir:
            self._wait()
            if self._running or not self._idle():
                return False
        with self._turning, self._stir:  # a turn that `wake` takes just now may leave something to hand back
            return self._idle()

    def _idle(self) -> bool:
        return not self._ends and self._unanswered is None and not self._may_fetch()

    def _may_fetch(self) -> bool:
        return bool(self._fetching and self._dirty - self._later.queues and self._room())

    def _next_at(self) -> float:
        """When to stir though nobody calls."""
        return min(self._look_at, self._due_at, self._pace.slow_at(self._at_work()))

    def _wait(self) -> None:
        """Sleep until there is something to do. Called under the lock."""
        while self._running:
            now = clock.monotonic()
            if min(self._look_at, self._due_at) <= now:
                self._look_at, self._due_at = now + SAFETY_SECONDS, math.inf
                self._dirty.update(self._queues)
                self._ends.extend(self._later.take())
                return  # also where nothing can be fetched now: a turn is a beat
            if not self._idle() or self._pace.slow_at(self._at_work()) <= now:
                return
            self._sleeps_until = self._next_at()
            self._stir.wait(self._sleeps_until - now)

    def _at_work(self) -> int:
        """What it holds but for what has ended, whether that waits for a turn or for a key to be mended."""
        return self._held - len(self._later) - len(self._ends)

    def _room(self) -> int:
        return max(0, self._pace.room - self._at_work())

    def _hand_back_excess(self) -> None:
        """Return what no thread has started and other processes may be free for."""
        with self._stir:
            excess = self._pace.excess(self._at_work(), clock.monotonic())
        for one in reversed(self._take_back(excess) if excess else ()):
            self.end(one.end("back"))

    def _turn(self) -> bool:
        """Take a turn, or ask again the one that got no answer; False if this gets none. Under the lock of turns."""
        unsettled = deque(self._unanswered.ends if self._unanswered else ())
        try:
            turn = self._unanswered = self._unanswered or self._next_turn(unsettled)
            answer = self._script(keys=turn.keys, args=turn.args, client=self._client)
            self._unanswered = None
            self._outages.back(self.worker_id)
            if answer == b"fenced":
                self._start_anew(unsettled)
            elif answer == b"old":
                raise RuntimeError(f"turn {turn.number} of {self.worker_id}: another process uses this worker's id")
            else:
                self._take(turn, answer, unsettled)
        except redis.RedisError as error:
            self._outages.lost(self.worker_id, error)
            return False
        except Exception:
            # A pump that died would leave a process that beats, holds messages and never ends them. Under a new id its
            # old one falls silent, and a reaper returns what it held.
            log.exception("turn_broke", worker=self.worker_id)
            self._unanswered = None
            self._start_anew(unsettled)
        return True

    def _next_turn(self, unsettled: deque[End]) -> Turn:
        """The turn that is due; its ends stand in `unsettled` until they are written or given up."""
        with self._stir:
            ends = [self._ends.popleft() for _ in range(min(len(self._ends), _ENDS_A_TURN))]
            self._pace.ended(sum(end.kind != "back" for end in ends), clock.monotonic())
            wanted = max(0, self._pace.room - self._held + len(self._later) + len(ends)) if self._fetching else 0
            dirty = self._dirty - self._later.queues
            looked_at = self._order.of([name for name in self._queues if name in dirty]) if wanted else []
            # The rotation: the next turn begins with another queue. A queue is cleared before it is looked at.
            self._queues = self._queues[1:] + self._queues[:1]
            self._dirty -= set(looked_at)
        for end in ends:
            if end.worker != self.worker_id:
                self._let_go(end, False)
        unsettled.extend(end for end in ends if end.worker == self.worker_id)
        self._number += 1
        wanted = wanted if looked_at else 0
        return self._turns.ask(self.worker_id, self._number, wanted, looked_at, self._queues, list(unsettled))

    def _take(self, turn: Turn, answer: list[bytes], unsettled: deque[End]) -> None:
        told = self._turns.read(self.worker_id, turn.names, answer)
        fetched, looked_at = told.fetched, turn.looked_at
        self._outages.looked_at(looked_at, told.broken, again_in=SAFETY_SECONDS)
        refused = [end for end, flag in zip(unsettled, told.flags, strict=True) if flag == "e"]
        for flag in told.flags:
            end = unsettled.popleft()
            if flag != "e":
                self._let_go(end, flag == "1")
        self.turned_at = clock.monotonic()
        with self._stir:
            self._later.turned(refused)
            self._held += len(fetched)
            self._open.update({(one.worker, one.delivery): one for one in fetched})
            fetching = self._fetching
            if turn.wanted and len(fetched) == turn.wanted:  # there may be more in any of them
                self._dirty.update(name for name in looked_at if name not in self._outages.broken)
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

    def _start_anew(self, ends: deque[End]) -> None:
        """This worker was reaped, or will be: its messages are others' now, whatever still runs here."""
        old, self.worker_id = self.worker_id, str(uuid.uuid4())
        self._number = 0
        log.warning("worker_fenced", worker=old, goes_on_as=self.worker_id, held=self._held)
        with self._stir:
            ends.extend(self._later.take())
            self._later = Refused()
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
