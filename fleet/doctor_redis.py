"""What `fleet doctor` finds in a Redis or Valkey: memory, eviction, persistence, replicas, its limits.

By INFO and CONFIG, which are `@dangerous`: a user that may not give them gets a warning in their place, and a server
whose CONFIG is shut (most that are rented) is judged by INFO alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import redis

from fleet.diagnosis import Finding, fact, problem, warning

Info = dict[str, Any]
_NEAR, _FULL = 0.75, 0.9  # of what it may use


def examine(client: redis.Redis) -> Iterator[Finding]:
    """Every finding; raises what redis-py raises when it does not answer."""
    try:
        info: Info = client.info()
    except redis.exceptions.NoPermissionError:
        yield warning(
            "redis",
            "its user may not give INFO, so that eviction, persistence and replicas are not known",
            "What Redis accepted may not be durable, and nobody would know",
            "Have the doctor ask as a user with +info +config|get",
        )
        return
    settings = _settings(client)
    yield from _eviction(info)
    yield from _memory(info)
    yield from _persistence(info, settings)
    yield from _replicas(info, settings)
    yield from _connections(info)
    yield durability(info, settings)


def _settings(client: redis.Redis) -> dict[str, str]:
    try:
        found: Any = client.config_get("appendfsync", "save", "min-replicas-to-write", "min-replicas-max-lag")
    except redis.ResponseError:
        return {}
    return {str(name): str(value) for name, value in found.items()}


def _eviction(info: Info) -> Iterator[Finding]:
    policy, most = str(info.get("maxmemory_policy", "noeviction")), int(info.get("maxmemory", 0))
    if policy == "noeviction":
        return
    what = "any key: whole queues" if policy.startswith("allkeys") else "keys that expire: the lead, fences, statistics"
    found = f"maxmemory-policy is {policy}"
    do = "CONFIG SET maxmemory-policy noeviction, and in its file; a full Redis then refuses sends, which are said"
    if most:
        yield problem("redis", f"{found}, at {_bytes(most)}", f"When it is full it drops {what}", do)
    else:
        yield warning("redis", f"{found}, without maxmemory", f"Once it has a limit it drops {what}", do)


def _memory(info: Info) -> Iterator[Finding]:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    limit = most or int(info.get("total_system_memory", 0))
    if not limit or used < _NEAR * limit:
        return
    found = f"{_bytes(used)} of {_bytes(limit)}{'' if most else ' of its machine'} are used"
    why = "Full, it refuses sends" if most else "Full, its machine kills it"
    do = "What fills it: `fleet status`, `fleet dead list`. Give it more, or drop dead letters"
    yield (problem if used >= _FULL * limit else warning)("redis", found, why, do)


def _persistence(info: Info, settings: dict[str, str]) -> Iterator[Finding]:
    for what, say in (("aof_last_write_status", "append-only file"), ("rdb_last_bgsave_status", "snapshot")):
        if info.get(what, "ok") != "ok":
            yield problem(
                "redis", f"its last write of the {say} failed", "It may refuse every write", "Is its disk full?"
            )
    if info.get("loading"):
        yield problem("redis", "it is still loading its data", "It answers nothing until then", "Wait")
    if info.get("aof_enabled"):
        if settings.get("appendfsync") == "no":
            yield warning(
                "redis",
                "appendfsync is no",
                "When its machine dies, what was accepted in the last half minute is gone",
                "CONFIG SET appendfsync everysec",
            )
    elif settings.get("save", "unknown"):
        yield warning(
            "redis",
            f"it keeps snapshots alone (save {settings.get('save') or 'unknown'})",
            "When it dies, everything since the last snapshot is gone, minutes of accepted messages",
            "CONFIG SET appendonly yes, and in its file",
        )
    else:
        yield problem(
            "redis",
            "it keeps nothing on disk (appendonly no, no save)",
            "When it dies or restarts, every message, slot and dead letter is gone: promise 1 is not kept",
            "CONFIG SET appendonly yes, and in its file",
        )


def _replicas(info: Info, settings: dict[str, str]) -> Iterator[Finding]:
    if info.get("role") != "master":
        yield problem("redis", f"it is a {info.get('role')}", "It takes no writes", "Name the master, or the sentinels")
        return
    count = int(info.get("connected_slaves", 0))
    if count and settings.get("min-replicas-to-write", "0") == "0":
        yield warning(
            "redis",
            f"{count} replicas listen, and it takes writes without them (min-replicas-to-write 0)",
            "After a failover, what it accepted while they lagged is gone",
            "CONFIG SET min-replicas-to-write 1, with min-replicas-max-lag; docs/redis.md",
        )
    for number in range(count):
        replica = info.get(f"slave{number}") or {}
        lag = int(replica.get("lag", 0)) if isinstance(replica, dict) else 0
        if lag > 10:
            yield warning(
                "redis", f"replica {number} lags by {lag} s", "A failover to it forgets as much", "Look at it"
            )


def _connections(info: Info) -> Iterator[Finding]:
    used, most = int(info.get("connected_clients", 0)), int(info.get("maxclients", 0))
    if most and used > 0.8 * most:
        do = "CONFIG SET maxclients, and the file limit of its process"
        yield warning("redis", f"{used} of {most} connections are taken", "Full, workers and sends are refused", do)


def durability(info: Info, settings: dict[str, str]) -> Finding:
    """What `accepted` means here, on which promise 1 rests."""
    fsync = settings.get("appendfsync", "everysec, if it is as usual")
    if info.get("aof_enabled"):
        window = {
            "always": "nothing that was accepted is lost when its machine dies",
            "no": "what was accepted in about the last 30 s is lost when its machine dies",
        }.get(fsync, "what was accepted in the last second or two is lost when its machine dies")
        kept = f"appendonly yes, appendfsync {fsync}: {window}; nothing when only its process does"
    else:
        kept = "no append-only file: what was accepted since the last snapshot, if there is one, is lost when it dies"
    count, least = int(info.get("connected_slaves", 0)), settings.get("min-replicas-to-write", "0")
    lag = settings.get("min-replicas-max-lag", "10")
    if not count:
        disk = "no replica: with its disk everything is lost but the outbox's messages and slots"
    elif least == "0":
        disk = f"{count} replicas, none waited for: a failover forgets what they had not heard yet"
    else:
        disk = f"{count} replicas, at least {least} within {lag} s: a failover forgets at most that"
    return fact("redis", f"durability: {kept}; {disk}", "", "")


def _bytes(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"
