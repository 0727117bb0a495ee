"""Whether the URL's user may do what its process's role does, or all that the engine does, and what to say if not.

A right that is missing is found at the start of a supervisor, a beat or a command, and named with all others that are
missing: a script that is refused half-way has already written its first half.

Not guaranteed: that rights which are taken away later are noticed as more than a Redis that refuses. A process that
only sends is not asked beforehand; its first `send` says what was refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import redis

from fleet.broker import keys
from fleet.broker.grants import Role
from fleet.broker.roles import Own
from fleet.broker.roles import asked as asked_of
from fleet.broker.scripts import Scripts
from fleet.errors import ServerRefused

_ON_A_KEY: dict[str, tuple[str, ...]] = {
    "": (
        *("DEL", "EXISTS", "GET", "GETDEL", "HGETALL", "HKEYS", "HLEN", "HRANDFIELD", "INCR", "LLEN"),
        *("LPOP", "MGET", "PTTL", "SCARD", "SMEMBERS", "WATCH", "XLEN", "ZCARD"),
    ),
    "1": ("EXPIRE", "HDEL", "HEXISTS", "HGET", "HMGET", "LINDEX", "LPOS", "LPUSH", "PEXPIRE", "RPUSH", "SADD", "SET"),
    "m": ("SISMEMBER", "SREM", "ZMSCORE", "ZREM", "ZSCORE"),
    "KEY RIGHT LEFT": ("LMOVE",),
    "0 1": ("LRANGE", "HSET", "HSETNX", "ZADD", "ZRANGE", "ZREMRANGEBYSCORE", "ZRANGEBYSCORE", "ZREVRANGE", "HINCRBY"),
    "* field value": ("XADD",),
    "+ -": ("XREVRANGE",),
    "- +": ("XRANGE",),
    "0 +inf": ("ZCOUNT",),
}
"""The commands that scripts and processes give on keys, by arguments that each could have behind its key."""
_ON_NO_KEY = ("MULTI", "EXEC", "PING", "TIME", "UNSUBSCRIBE", "UNWATCH", "SELECT 0", "SCRIPT LOAD x", "EVALSHA x 0")
_A_CALL = 100  # commands a script judges: a bounded time for everybody else
_SHOWN = 8
_RIGHTS_ARE_IN = "the rights that it needs are in docs/redis.md"


def refusal(error: Exception) -> str | None:
    """What was refused and what to do, for an error by which Redis refuses who asks; None for any other."""
    if isinstance(error, (redis.AuthenticationError, redis.exceptions.AuthorizationError)):
        return (
            f"Redis refused the user or password of FLEET_REDIS_URL ({error}). Check both, and that @ : / ? # and % "
            "in them are percent-encoded."
        )
    # A script that is refused half-way says so in words only.
    if isinstance(error, redis.exceptions.NoPermissionError) or "ACL failure in script" in str(error):
        return f"Redis refused a right to the user of FLEET_REDIS_URL ({error}); {_RIGHTS_ARE_IN}."
    return None


def require_rights(client: redis.Redis, scripts: Scripts, namespace: str) -> None:
    """Raise `ServerRefused` with every right that is missing of all that the engine does; what redis-py raises when
    Redis does not answer."""
    asked = _asked(namespace)
    if missing := _missing(client, scripts, asked):
        raise ServerRefused(
            f"The user of FLEET_REDIS_URL lacks rights on Redis in the namespace {namespace!r}: "
            f"{_named(missing, namespace)}; {_RIGHTS_ARE_IN}."
        )


def require_role(client: redis.Redis, scripts: Scripts, role: Role, own: Own) -> None:
    """The same for what one role does, on the queues and entries of the application that asks."""
    if missing := _missing(client, scripts, asked_of(role, own)):
        raise ServerRefused(
            f"The user of FLEET_REDIS_URL lacks rights of the role {role!r} in the namespace {own.namespace!r}: "
            f"{_told(missing)}. `fleet acl {role}` prints the line that gives them; {_RIGHTS_ARE_IN}."
        )


def _missing(client: redis.Redis, scripts: Scripts, asked: Sequence[list[str]]) -> list[list[str]]:
    found: list[list[str]] = []
    for start in range(0, len(asked), _A_CALL):
        some = asked[start : start + _A_CALL]
        try:
            places: list[int] = scripts.rights(args=[json.dumps(words) for words in some], client=client)
        except redis.RedisError as error:
            refused = refusal(error)
            if refused is None:
                raise
            raise ServerRefused(refused) from None
        found += [some[place - 1] for place in places]
    return found


def _told(missing: Sequence[list[str]]) -> str:
    """Commands by the keys they lack, the most of them first."""
    lacking: dict[str, list[str]] = {}
    for command, *more in missing:
        name = f"{command} {more[0]}" if command in ("SCRIPT", "CONFIG") else command
        on = f" on {more[0]}" if more and command not in ("SCRIPT", "CONFIG", "SELECT", "SCAN", "EVALSHA") else ""
        lacking.setdefault(on, []).append(name)
    told = [f"{', '.join(names)}{on}" for on, names in sorted(lacking.items(), key=lambda item: -len(item[1]))]
    return "; ".join(told[:_SHOWN]) + (f"; and more on {len(told) - _SHOWN} other keys" if len(told) > _SHOWN else "")


def _asked(namespace: str) -> list[list[str]]:
    of_fleet, of_dramatiq, channel = keys.beats(namespace), keys.queue(namespace, "queue"), keys.wake(namespace)
    on_keys = [
        [command, of_fleet, *more.replace("KEY", of_fleet).split()]
        for more, some in _ON_A_KEY.items()
        for command in some
    ]
    others = [
        ["GET", of_dramatiq],
        ["PUBLISH", channel, ""],
        ["SUBSCRIBE", channel],
    ]
    return [*on_keys, *others, *(words.split() for words in _ON_NO_KEY)]


def _named(refused: list[list[str]], namespace: str) -> str:
    """Commands by their names; where none may touch a key, the keys are what is missing."""
    on_keys = [words for words in refused if keys.beats(namespace) in words]
    names: list[str] = []
    if len(on_keys) == sum(map(len, _ON_A_KEY.values())):
        names.append(f"all commands on the keys {namespace}:*")
        refused = [words for words in refused if words not in on_keys]
    for command, *more in refused:
        if command in ("PUBLISH", "SUBSCRIBE"):
            names.append(f"{command} on the channel {more[0]}")
        else:
            names.append(f"SCRIPT {more[0]}" if command == "SCRIPT" else command)
    return ", ".join(dict.fromkeys(names))
