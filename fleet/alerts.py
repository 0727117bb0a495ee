"""Alerts: what is wrong and since when, said once when it opens and once when it closes.

A *finding* is one figure that is over its threshold at one look. What looks at the fleet hands all its findings to
`judge`, which keeps an *episode* of each kind and subject in Redis:

                found                found for `for_`               gone for `keep`
    (nothing) ---------> pending ----------------------> open ----------------------> closed ---> (nothing)
        ^                   | gone                        ^ | found again within `keep`: the same episode
        +-------------------+                             +-+

Opening is one CRITICAL line `alert_opened` and one report to Sentry under the fingerprint [kind, subject]; closing is
one WARNING line `alert_closed`. All times are night time, by the server's clock. Two judges at once are safe: an
episode changes by compare-and-set, and who changed it says it.

Not guaranteed: exactly once. A judge that dies between its line and its mark in Redis leaves the line to the next one,
a minute later, which says it again; it is never left unsaid while somebody judges. Raises what redis-py raises when
Redis does not answer: nothing changed then, or what did is said by the next judge.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import redis

from fleet import sentry, wire
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.logs import get_logger

log = get_logger(__name__)

_SAID_WITHIN = timedelta(minutes=1)  # after that another judge says what one did not come to say
_KEPT = timedelta(days=7)
_TRIES = 20

KINDS: Mapping[str, str] = {
    "queue_old": "the oldest due message of a queue waits for longer than it may",
    "queue_lag": "messages of a queue start later after they were due than they may",
    "queue_deep": "a queue is deep and does not drain",
    "queue_unserved": "messages are due in a queue that no worker serves",
    "queue_broken": "a key of a queue is not of its type, so that its figures cannot be read",
    "dead_letters": "messages became dead letters",
    "probe_stale": "no reading of the queues was taken lately",
    "slot_expired": "work of an entry's slot was not begun in its window, and is not done",
    "sweep_cut": "a sweep was ended before its last row",
    "sweep_failed": "rows of a sweep failed",
}
"""Every kind of alert; each has a place in `docs/when-things-go-wrong.md`, named like it."""


@dataclass(frozen=True)
class Finding:
    """One figure that is over its threshold now. `found` and `threshold` are in a person's words.

    `means` says what it means for whom.
    """

    kind: str
    subject: str
    figure: str
    found: str
    threshold: str
    means: str
    lane: str = ""

    @property
    def runbook(self) -> str:
        """Where `docs/when-things-go-wrong.md` says what to do."""
        return f"#{self.kind}"


@dataclass(frozen=True)
class Rule:
    """For how long (night time) a finding must stand before it opens, and must be gone before it closes."""

    for_: timedelta
    keep: timedelta


@dataclass(frozen=True)
class Alert:
    """An open alert, in night time: since when there was a finding, when it opened, and when it was last found."""

    finding: Finding
    since: datetime
    opened: datetime
    last: datetime

    @property
    def runbook(self) -> str:
        return self.finding.runbook


@dataclass(frozen=True)
class Episode:
    """A kind and subject from its first finding on. `said` is whether its last opening or closing was; `by` who does.

    `changed` is when it opened or closed, or when who says so was last chosen.
    """

    finding: Finding
    since: datetime
    last: datetime
    opened: datetime | None = None
    closed: datetime | None = None
    said: bool = True
    by: str = ""
    changed: datetime | None = None

    @property
    def alert(self) -> Alert | None:
        """The alert while it is open."""
        if self.opened is None or self.closed is not None:
            return None
        return Alert(self.finding, self.since, self.opened, self.last)


def step(episode: Episode | None, finding: Finding | None, rule: Rule, now: datetime, by: str) -> Episode | None:
    """What an episode becomes by one look; None for none. A closed one stays as it is until its closing is said."""
    if episode is None:
        if finding is None:
            return None
        episode = Episode(finding, since=now, last=now)
    elif episode.closed is not None:
        return episode
    if finding is not None:
        episode = replace(episode, finding=finding, last=max(now, episode.last))
        if episode.opened is None and now - episode.since >= rule.for_:
            return replace(episode, opened=now, said=False, by=by, changed=now)
        return episode
    if episode.opened is None:
        return None
    if now - episode.last >= rule.keep:
        return replace(episode, closed=now, said=False, by=by, changed=now)
    return episode


def judge(
    broker: FleetBroker,
    findings: Iterable[Finding],
    rules: Mapping[str, Rule],
    client: redis.Redis | None = None,
) -> list[Alert]:
    """Bring the episodes up to date with what is found now, say what opened and closed; returns what is open.

    A rule is looked up by `kind:subject`, else by the kind. Episodes without a rule are left as they are: who looks at
    some kinds only closes nothing of the others. Raises `KeyError` for a finding without a rule.
    """
    store = _Store(client or broker.client, keys.alerts(broker.namespace))
    found = {f"{one.kind}:{one.subject}": one for one in findings}
    for key in found:
        _rule(rules, key, required=True)
    me = str(uuid.uuid4())

    def changed(episodes: dict[str, Episode], now: datetime) -> dict[str, Episode | None]:
        after: dict[str, Episode | None] = {}
        for key in episodes.keys() | found.keys():
            rule, episode = _rule(rules, key), episodes.get(key)
            if rule is not None:
                after[key] = _taken_over(step(episode, found.get(key), rule, now, me), now, me)
        return after

    episodes = store.change(changed)
    mine = {key: episode for key, episode in episodes.items() if not episode.said and episode.by == me}
    for episode in mine.values():
        _say(episode)
    if mine:
        episodes = store.change(lambda stored, _: {key: _told(stored.get(key), me) for key in mine if key in stored})
    return _open(episodes.values())


def open_alerts(broker: FleetBroker, client: redis.Redis | None = None) -> list[Alert]:
    """The alerts that are open, longest first; one round trip."""
    stored: Any = (client or broker.client).hgetall(keys.alerts(broker.namespace))
    return _open(_episodes(stored).values())


def _open(episodes: Iterable[Episode]) -> list[Alert]:
    return sorted((alert for one in episodes if (alert := one.alert)), key=lambda alert: alert.since)


def _rule(rules: Mapping[str, Rule], key: str, *, required: bool = False) -> Rule | None:
    kind = key.partition(":")[0]
    return rules.get(key) or (rules[kind] if required else rules.get(kind))


def _taken_over(episode: Episode | None, now: datetime, me: str) -> Episode | None:
    """The same, to be said by this judge if whoever was to say it has not."""
    if episode is None or episode.said or episode.by == me:
        return episode
    if episode.changed is not None and timedelta(0) <= now - episode.changed < _SAID_WITHIN:
        return episode
    return replace(episode, by=me, changed=now)


def _told(episode: Episode | None, me: str) -> Episode | None:
    if episode is None or episode.by != me:
        return episode
    return None if episode.closed is not None else replace(episode, said=True)


def _say(episode: Episode) -> None:
    one = episode.finding
    known = {"kind": one.kind, "subject": one.subject, "lane": one.lane, "figure": one.figure}
    if episode.closed is not None:
        lasted = episode.closed - (episode.opened or episode.since)
        log.warning("alert_closed", **known, since=episode.since.isoformat(), lasted=str(lasted))
        return
    log.critical(
        "alert_opened",
        **known,
        found=one.found,
        threshold=one.threshold,
        since=episode.since.isoformat(),
        means=one.means,
        runbook=one.runbook,
    )
    title = f"{one.kind} {one.subject}: {one.figure} {one.found}"
    tags = {"lane": one.lane, "kind": one.kind, "subject": one.subject, "runbook": one.runbook}
    try:
        sentry.report_issue(title, fingerprint=[one.kind, one.subject], level="error", **tags)
    except Exception as error:  # what cannot be reported was logged, and the next alert is not to wait for it
        log.warning("alert_not_reported", kind=one.kind, subject=one.subject, error=repr(error))


class _Store:
    """The episodes in Redis, changed by compare-and-set."""

    def __init__(self, client: redis.Redis, key: str) -> None:
        self._client, self._key = client, key

    def change(
        self, changed: Callable[[dict[str, Episode], datetime], Mapping[str, Episode | None]]
    ) -> dict[str, Episode]:
        """Set some episodes to what `changed` makes of all and the server's night time (None: gone); returns all.

        Raises `redis.WatchError` when others changed them under each of many tries.
        """
        with self._client.pipeline(transaction=True) as pipe:
            for tries_left in reversed(range(_TRIES)):
                try:
                    return self._change(pipe, changed)
                except redis.WatchError:
                    if not tries_left:
                        raise
                    time.sleep(random.uniform(0, 0.02))
        raise AssertionError("the last try returns or raises")

    def _change(
        self,
        pipe: Any,
        changed: Callable[[dict[str, Episode], datetime], Mapping[str, Episode | None]],
    ) -> dict[str, Episode]:
        pipe.watch(self._key)
        seconds, micros = pipe.time()
        now = clock.to_night(wire.from_ms(int(seconds) * 1000 + int(micros) // 1000))
        episodes = _episodes(pipe.hgetall(self._key))
        after = changed(episodes, now)
        written = {key: one for key, one in after.items() if one is not None and one != episodes.get(key)}
        gone = [key for key, one in after.items() if one is None and key in episodes]
        pipe.multi()
        if written:
            pipe.hset(self._key, mapping={key: _encoded(one) for key, one in written.items()})
        if gone:
            pipe.hdel(self._key, *gone)
        pipe.pexpire(self._key, max(50, wire.duration_ms(clock.to_real(_KEPT))))
        pipe.execute()
        return {key: one for key, one in (episodes | written).items() if key not in gone}


def _encoded(episode: Episode) -> str:
    told = {name: value for name, value in asdict(episode).items() if value is not None}
    return json.dumps(told, default=lambda value: value.isoformat())


def _episodes(stored: Mapping[bytes, bytes]) -> dict[str, Episode]:
    """What is stored; what another version wrote and this one cannot read is none."""
    episodes = {}
    for key, written in stored.items():
        try:
            told = json.loads(written)
            instants = {name: datetime.fromisoformat(told[name]) for name in _INSTANTS if name in told}
            episodes[key.decode()] = Episode(**{**told, **instants, "finding": Finding(**told["finding"])})
        except (ValueError, KeyError, TypeError, AttributeError):
            log.warning("alert_unreadable", key=key.decode(errors="replace"))
    return episodes


_INSTANTS = ("since", "last", "opened", "closed", "changed")
