"""Who leads: a lock in Redis with a term, a thread that keeps it, and a clock that says for how long to believe in it.

                   SET token NX PX ttl, epoch + 1
    +----------+ ----------------------------------> +--------+ --+
    | follower |                                     | leader |   | renewed every `renewal`,
    +----------+ <---------------------------------- +--------+ <-+ by token and epoch
      ^      |     renewal failed or unanswered,         |
      |      |     lock or epoch not its own any more    | unfit: released
  fit |      | unfit                                     v
      |      +---------------------------------------> +-------+     from any state, SIGTERM:
      +----------------------------------------------- | unfit |     released, followers woken, the end
                                                       +-------+

A *term* is from the SET that took the lock to the moment the lock is not this replica's any more; its number is the
epoch. A replica that finds its own token in the lock (a reply was lost) goes on with the same term: nobody else led in
between, and a fire of that term that is still under way is judged by its entry's mark.

The *trust window*: the leader believes in its term until `sent + ttl - margin`, by a monotonic clock that counts
suspend, read before the renewal was sent. Redis sets the expiry after that instant, so the belief ends before the lock
can, by the margin at least. `leads()` only compares clocks: no call that hangs can prolong it.

What fails, and what follows:

- *The leader dies.* Its lock lapses a `ttl` after its last renewal. Followers know when: each waits for as long as the
  lock has left (at most one `renewal`), and asks again in that very moment.
- *SIGTERM.* The leader's thread releases, whatever the other threads do, and the release is published.
- *A renewal fails, or has no answer within its client's socket timeout.* Not leader, at once; the next campaign is
  sent at once, and then four times a `renewal`. A timeout of one `renewal` is found out before the term ends, since a
  ttl is at least two renewals and the margin.
- *A reply is lost.* The next campaign finds its own token and goes on. If the reply to the last release was what was
  lost, or a campaign arrives after it, the lock stands for one ttl without a leader.
- *The process is stopped, or the machine suspended, past its term.* `leads()` is false in the moment it wakes; whatever
  it sent is refused by the scripts, which check token and epoch. Its thread learns so from the next renewal.
- *Other threads hang, or burn the processor.* The renewals are a thread's own. Where `fit` has a complaint (the alarm
  clock died, firing hangs) the lock is given up, so that a replica in order can lead.
- *Redis goes away, is replaced, or forgets.* The thread goes on asking; nothing ends it or the process. Two replicas
  can both believe in a term after a failover that forgot the lock, for one trust window.

Not guaranteed, therefore: that there is one leader. The lock saves work; the step that fires checks token and epoch.
"""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import redis

from fleet import metrics, wire
from fleet.broker import keys
from fleet.broker.wake import Wake
from fleet.clock import clock
from fleet.logs import get_logger
from fleet.settings import LEADER_MARGIN

log = get_logger(__name__)

_HERE = Path(__file__).parent
_LAPSED = 0.002  # seconds by which a lock is surely gone after the milliseconds it had left


def _in_order() -> str | None:
    return None


class Leader:
    """Campaigns for this replica; `token` is its identity, fresh a process.

    `client` is its own, with a socket timeout of at most `renewal`. `fit` says what keeps this replica from leading,
    None if nothing does; it is called from the leader's thread before each question.
    """

    def __init__(
        self,
        client: redis.Redis,
        namespace: str,
        *,
        ttl: timedelta,
        renewal: timedelta,
        fit: Callable[[], str | None] = _in_order,
        on_elected: Callable[[], None] = lambda: None,
    ) -> None:
        self._lock, self._epochs = keys.leader(namespace), keys.epoch(namespace)
        self._ttl, self._renewal, self._fit, self._on_elected = ttl, renewal.total_seconds(), fit, on_elected
        self.token = str(uuid.uuid4())
        self.epoch = 0
        self.leads_since: datetime | None = None  # real time
        self._trusted_until = 0.0
        self._holds = self._unfit = self._resigned = False
        self._acquire, self._renew, self._release = (
            client.register_script((_HERE / f"{name}.lua").read_text()) for name in ("acquire", "renew", "release")
        )
        # Not an Event: its lock would be waited for for ever where a signal's handler interrupts its own `set`.
        self._knocks: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="leader", daemon=True)
        self._wake = Wake(client, namespace, channel=self._lock, wake=self._knock, wake_all=self._knock)

    def start(self) -> None:
        self._thread.start()
        self._wake.start()

    def leads(self) -> bool:
        """Whether this replica may act as leader at this very moment."""
        return not self._resigned and clock.monotonic() < self._trusted_until

    def resign(self) -> None:
        """Lead no more from now on; the thread releases the lock. May be called by the handler of a signal."""
        self._resigned = True
        self._knocks.put(None)

    def stop(self) -> None:
        """Resign, and wait until the lock is released or Redis did not answer."""
        self.resign()
        self._wake.stop()
        self._thread.join(self._ttl.total_seconds())

    def _knock(self, *_: object) -> None:
        if not self._holds:
            self._knocks.put(None)

    def _run(self) -> None:
        while not self._resigned:
            try:
                pause = self._turn()
            except Exception as error:  # whatever it is, the next campaign may go well
                log.exception("beat_campaign_broke", token=self.token)
                pause = self._settle(False, f"campaign broke: {error!r}")
            self._wait(pause)
        held = self._holds
        self._settle(False, None)
        self._let_go(held)

    def _wait(self, seconds: float) -> None:
        try:
            self._knocks.get(timeout=max(0.0, seconds))
            while not self._knocks.empty():
                self._knocks.get_nowait()
        except queue.Empty:
            return

    def _turn(self) -> float:
        """Ask Redis once, if this replica is fit to lead; returns the seconds until the next question."""
        if complaint := self._complaint():
            held = self._holds
            self._settle(False, complaint)
            if held:
                self._let_go(held)
            return self._renewal / 4
        sent = clock.monotonic()
        try:
            epoch, left = self._ask()
        except redis.RedisError as error:
            return self._settle(False, f"Redis did not answer: {error}")
        if not epoch:
            self._settle(False, "the lock is not this replica's any more")
            return min(left / 1000 + _LAPSED, self._renewal) if left >= 0 else self._renewal
        self.epoch = epoch
        self._trusted_until = sent + (self._ttl - LEADER_MARGIN).total_seconds()
        self._settle(True, None)
        return sent + self._renewal - clock.monotonic()

    def _ask(self) -> tuple[int, int]:
        """The epoch of this replica's term, 0 if it has none; and the milliseconds until the lock lapses."""
        ttl = wire.duration_ms(self._ttl)
        if self._holds:
            renewed = self._renew(keys=[self._lock, self._epochs], args=[self.token, self.epoch, ttl])
            return (self.epoch, ttl) if renewed else (0, 0)
        answer: Any = self._acquire(keys=[self._lock, self._epochs], args=[self.token, ttl])
        return int(answer[0]), int(answer[1])

    def _settle(self, holds: bool, why: str | None) -> float:
        """Take note of whether this replica leads, and say what changed; returns the seconds until the next campaign.

        None is left of a term that ended, before anything else is done about it.
        """
        if not holds:
            self._trusted_until = 0.0
        if holds == self._holds:
            return self._renewal / 4
        self._holds = holds
        metrics.leading(holds)
        self.leads_since = clock.real_now() if holds else None
        if holds:
            log.info("beat_elected", token=self.token, epoch=self.epoch)
            self._on_elected()
        elif why is not None:
            log.error("beat_deposed", token=self.token, epoch=self.epoch, reason=why)
        return 0.0

    def _complaint(self) -> str | None:
        try:
            complaint = self._fit()
        except Exception as error:  # who cannot be judged does not lead
            complaint = f"the check itself failed: {error!r}"
        if complaint and not self._unfit:
            log.error("beat_unfit", token=self.token, reason=complaint)
        elif self._unfit and not complaint:
            log.warning("beat_fit_again", token=self.token)
        self._unfit = complaint is not None
        return complaint

    def _let_go(self, held: bool) -> None:
        """Release, also where it is not known whether there is anything to release: a reply may have been lost."""
        try:
            released = self._release(keys=[self._lock], args=[self.token])
        except redis.RedisError as error:
            if held:
                log.warning("beat_not_released", token=self.token, error=str(error), ends_in=str(self._ttl))
            return
        if released:
            log.info("beat_released", token=self.token, epoch=self.epoch)
