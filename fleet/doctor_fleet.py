"""What `fleet doctor` finds of the fleet itself: limits of this host, settings, and what stands under its namespace.

Not guaranteed: that all keys of a large Redis were looked at. A look takes at most two seconds; one that had to stop
says so, and what it found by then is right.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from typing import Any

import redis

from fleet import wire
from fleet.app import App
from fleet.broker import FleetBroker, keys
from fleet.catalogue import read_catalogue
from fleet.clock import clock
from fleet.declarations import Lane
from fleet.diagnosis import Finding, problem, warning
from fleet.doctor_postgres import skew
from fleet.settings import Settings

_LOOKS_SECONDS = 2.0
_FILES_OF_A_PROCESS = 100  # libraries, logs, the board, metrics, Redis
_CONNECTIONS_OF_A_PROCESS = 8  # the pump, the subscription, beats, statistics
_FILES_OF_A_THREAD = 3  # a call to the other side, a connection to Redis, a file


def host(lanes: Sequence[Lane], settings: Settings) -> Iterator[Finding]:
    """Limits and settings of the process that asks, which lanes started like it would have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    for lane in lanes:
        files = _FILES_OF_A_PROCESS + _FILES_OF_A_THREAD * lane.threads + settings.database_pool
        if soft != resource.RLIM_INFINITY and files > soft:
            yield problem(
                "host",
                f"a process may open {soft} files, and one of lane {lane.name} ({lane.threads} threads) needs {files}",
                "Its jobs fail with `too many open files` when all threads are busy",
                "ulimit -n, LimitNOFILE= of the unit, or ulimits of the container",
            )
    if not settings.sentry_dsn:
        why = "Failures stand in logs alone, and no cron monitor notices a beat that is gone"
        yield warning("host", "no Sentry is configured (FLEET_SENTRY_DSN)", why, "Give a DSN, unless that is wanted")
    if settings.metrics_port == 0:
        why = "Prometheus cannot know it, and neither can a probe"
        yield warning(
            "host", "FLEET_METRICS_PORT is 0, a free one each time", why, "Give each process a port of its own"
        )


def connections_to_redis(lanes: Sequence[Lane], client: redis.Redis) -> Iterator[Finding]:
    """A worker process's own limit, `max_connections` of the URL, against a thread's sends and claims."""
    most = int(client.connection_pool.max_connections)
    for lane in lanes:
        needs = lane.threads + _CONNECTIONS_OF_A_PROCESS
        if needs > most:
            found = (
                f"FLEET_REDIS_URL allows a process {most} connections, and one of lane {lane.name} needs up to {needs}"
            )
            yield problem("redis", found, "Sends fail when all threads send", "Raise or leave out max_connections=")


def clock_of_redis(client: redis.Redis) -> Iterator[Finding]:
    """Slots go by this clock."""
    before = clock.real_now()
    seconds, micros = client.time()
    there = wire.from_ms(int(seconds) * 1000 + int(micros) // 1000)
    yield from skew("redis", before, there, clock.real_now())


def keys_of(app: App, client: redis.Redis, namespace: str) -> Iterator[Finding]:
    """Other fleets whose keys begin alike, and queues with messages that nobody serves."""
    yield from _parents(client, namespace)
    served = {queue for lane in app.lanes for queue in lane.queues}
    inner, queues = set(), set()
    try:
        for key in _scan(client, f"{namespace}:*"):
            rest = key.removeprefix(f"{namespace}:")
            head, fleets, _ = rest.partition(":fleet:")
            if fleets and head:
                inner.add(f"{namespace}:{head}")
            elif ":" not in rest and rest.endswith((".msgs", ".XQ")):
                queues.add(rest.removesuffix(".msgs").removesuffix(".XQ").removesuffix(".DQ"))
    except redis.exceptions.NoPermissionError:
        why = "Queues that no lane serves, and namespaces that begin alike, are not looked for"
        yield warning(
            "fleet", "the user of FLEET_REDIS_URL may not give SCAN", why, "Have the doctor ask as one that may"
        )
        return
    except TimeoutError:
        why = "Some queues that no lane serves may not be named here"
        yield warning(
            "fleet", f"looking at all keys took more than {_LOOKS_SECONDS:g} s", why, "Give the fleet a database"
        )
    for other in sorted(inner):
        yield _alike(namespace, other)
    yield from _unserved(client, namespace, sorted(queues - served))


def _scan(client: redis.Redis, pattern: str) -> Iterator[str]:
    """Raises `TimeoutError` when there are too many keys to look at all."""
    ends = clock.monotonic() + _LOOKS_SECONDS
    for key in client.scan_iter(pattern, count=1_000):
        yield key.decode(errors="replace")
        if clock.monotonic() > ends:
            raise TimeoutError


def _parents(client: redis.Redis, namespace: str) -> Iterator[Finding]:
    """Fleets with the namespace `a`, where this one's is `a:b`."""
    parts = namespace.split(":")
    for outer in (":".join(parts[:count]) for count in range(1, len(parts))):
        try:
            there = client.exists(keys.catalogue(outer), keys.workers(outer))
        except redis.exceptions.NoPermissionError:  # nor can it take what is that fleet's
            continue
        if there:
            yield _alike(outer, namespace)


def _alike(outer: str, inner: str) -> Finding:
    why = "A queue of the first can be a key of the second, and clearing the first's keys takes the second's"
    return problem("fleet", f"the namespaces {outer!r} and {inner!r} share this database", why, "Rename one of them")


def _unserved(client: redis.Redis, namespace: str, queues: Sequence[str]) -> Iterator[Finding]:
    with client.pipeline(transaction=False) as pipe:
        for name in queues:
            pipe.hlen(keys.bodies(namespace, name))
            pipe.hlen(keys.bodies(namespace, keys.delayed(name)))
            pipe.zcard(keys.dead(namespace, name))
        counts: list[Any] = pipe.execute()
    for number, name in enumerate(queues):
        waiting, delayed, dead = counts[3 * number : 3 * number + 3]
        if waiting + delayed:
            found = f"queue {name!r} has {waiting + delayed:,} messages, and no lane of config/lanes.py serves it"
            yield problem("fleet", found, "They wait for ever", "Add it to a lane, or move them: who sends there?")
        if dead:
            found = f"queue {name!r}, which no lane serves, has {dead:,} dead letters"
            do = f"`fleet dead list --queue {name}`, then requeue or discard them"
            yield warning("fleet", found, "No lane drops them by age; a janitor does, in time", do)


def entries_of(app: App, client: redis.Redis, namespace: str) -> Iterator[Finding]:
    """Entries of this code that ended in the stored schedule: the beat that registered last did not declare them."""
    names = [entry.name for entry in app.schedule]
    stored: Any = client.hmget(keys.revisions(namespace), names) if names else []
    # As beat/register.lua writes an entry's last revision.
    ended = [name for name, lines in zip(names, stored, strict=True) if lines is not None and lines.endswith(b" -")]
    if ended:
        yield warning(
            "fleet",
            f"the stored schedule has ended entries that this code declares: {', '.join(ended)}",
            "They fire no more: the beat that started last does not declare them",
            f"Start a beat of this code. If they end again, another application has the namespace {namespace!r} too: "
            "give it one of its own (FLEET_NAMESPACE)",
        )


def catalogue_of(app: App, broker: FleetBroker) -> Iterator[Finding]:
    """Actors that workers publish and this code does not know, and those of the schedule that nobody publishes."""
    published = read_catalogue(broker)
    unknown = sorted(published.keys() - app.actors.keys())
    if unknown:
        why = "Their messages become dead letters (`unknown actor`) where this code runs"
        yield warning(
            "fleet",
            f"workers publish actors that this code does not know: {', '.join(unknown)}",
            why,
            "Is a deploy under way? Else an old or a newer release still runs, or they go within a week",
        )
    missing = sorted({entry.actor for entry in app.schedule} - published.keys())
    if published and missing:
        why = "Their slots' messages become dead letters until a worker that knows them runs"
        yield warning("fleet", f"no worker knows actors of the schedule: {', '.join(missing)}", why, "Deploy the lanes")
