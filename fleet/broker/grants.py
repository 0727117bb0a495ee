"""Which commands on which keys each role of a fleet gives: a table a flow, and which role has which of them.

Found by reading what scripts and processes ask; tests/security/test_role_processes.py runs each role with no more than
this. Who gives a new command adds it here, or is refused at the first of it.

Not guaranteed: that a role could not do without some of it for a while; what is here is asked for at a start.
"""

from __future__ import annotations

from typing import Literal, get_args

Role = Literal["producer", "worker", "beat", "console", "doctor"]
ROLES: tuple[Role, ...] = get_args(Role)
Grants = dict[str, str]
"""Place (most are functions of `fleet.broker.keys`) -> the commands that may be given on its keys."""

READS = frozenset(
    {
        *("EXISTS", "GET", "HEXISTS", "HGET", "HGETALL", "HKEYS", "HLEN", "HMGET", "HRANDFIELD", "HSCAN", "LLEN"),
        *("LPOS", "LRANGE", "MGET", "PTTL", "SCARD", "SISMEMBER", "SMEMBERS", "WATCH", "XLEN", "XRANGE", "XREVRANGE"),
        *("ZCARD", "ZCOUNT", "ZMSCORE", "ZRANGE", "ZRANGEBYSCORE", "ZREVRANGE", "ZSCORE"),
    }
)
READ_AND_WRITE = frozenset({"GETDEL", "HINCRBY", "INCR", "LPOP", "SET"})
"""Commands that answer with what they change; all others that are no reads only write."""

_SEND: Grants = {
    "sender": "GET SET",
    "awaited": "SCARD SREM",
    "queue": "LLEN RPUSH",
    "bodies": "HLEN HSETNX",
    "due": "ZADD ZCARD ZRANGE",
    "outbox": "EXPIRE ZADD ZRANGEBYSCORE ZREM",
}
_CATALOGUE: Grants = {"catalogue": "HGETALL"}
_TURN: Grants = {
    "tombstone": "EXISTS",
    "turn": "DEL EXPIRE HMGET HSET",
    "beats": "HDEL HINCRBY",
    "heartbeats": "ZADD ZREM",
    "workers": "HDEL HSET",
    "awaited": "SADD SCARD",
    **dict.fromkeys(("queue", "suspects"), "LLEN LPOP LPUSH RPUSH"),
    "bodies": "HDEL HEXISTS HGET HLEN HSET HSETNX",
    "acks": "SADD SCARD SREM",
    "held": "ZADD ZCARD ZREM ZSCORE",
    "due": "EXISTS ZADD ZCARD ZRANGE ZRANGEBYSCORE ZREM",
    "stock_queue": "LLEN LPOP",
    "stock_bodies": "HDEL HGET HLEN",
    "dead": "ZADD ZCARD",
    **dict.fromkeys(("dead_bodies", "dead_details"), "HGET HLEN HSET"),
    **dict.fromkeys(("losses", "deaths"), "EXISTS HDEL HEXISTS HLEN"),
}
_REAP: Grants = {
    "tombstone": "SET",
    "beats": "HGETALL HLEN",
    "heartbeats": "ZCARD ZRANGE ZSCORE",
    "workers": "HGETALL HLEN",
    "acks": "DEL EXISTS SMEMBERS",
    "held": "DEL ZREVRANGE",
    "losses": "EXPIRE HINCRBY",
    "deaths": "EXPIRE HGET HSET",
    "one_at_a_time": "EXISTS SET",
}
_REAP_STOCK: Grants = {
    "stock_queue": "LLEN LPUSH",
    "stock_bodies": "HEXISTS HLEN",
    "stock_acks": "DEL EXISTS SCARD SMEMBERS SREM",
    "stock_held": "DEL ZCARD ZREVRANGE ZSCORE",
}
"""What a stock worker holds of the delay queue that stock Dramatiq has beside each queue."""
_TRIM: Grants = {
    "dead": "ZCARD ZCOUNT ZRANGE ZRANGEBYSCORE ZREM ZSCORE",
    "dead_bodies": "HDEL HLEN",
    "dead_details": "HDEL HLEN HRANDFIELD",
}
_SERVE: Grants = {
    "relay_turn": "SET",
    "outbox": "ZMSCORE",
    "catalogue": "HDEL HGETALL HSET WATCH",
    "flow": "HINCRBY PEXPIRE",
    "prefetched": "EXPIRE HDEL HSET",
    "entry_runs": "PEXPIRE XADD",
    "parked": "PEXPIRE PTTL SET",
    "quota": "PEXPIRE ZADD ZCARD ZREM ZREMRANGEBYSCORE ZSCORE",
    "measures": "EXPIRE HINCRBY",
    **dict.fromkeys(("allowance", "hold"), "MGET"),
    "paused": "HMGET",
    "audit": "XADD",
}
_SEED: Grants = {"chains": "HGET HGETALL HLEN HMGET HSET", "bodies": "HEXISTS HMGET", "awaited": "SCARD"}
_REPORT: Grants = {"processes": "HDEL HGETALL HSET", "processes_seen": "ZADD ZRANGEBYSCORE ZREM"}
_PROBE: Grants = {
    "history": "PEXPIRE XADD XRANGE XREVRANGE",
    "heartbeats": "ZRANGEBYSCORE",
    "workers": "HEXISTS HMGET",
    "prefetched": "HDEL HKEYS HMGET",
    **dict.fromkeys(("queue", "suspects", "stock_queue"), "LLEN LRANGE"),
    **dict.fromkeys(("bodies", "stock_bodies"), "HLEN HMGET"),
    "due": "ZCARD ZRANGE",
    "dead": "ZCARD ZCOUNT",
    "flow": "HGETALL",
    "readings": "HGET HGETALL HSET PEXPIRE",
    "alerts": "HDEL HGETALL HSET PEXPIRE WATCH",
    "ledger": "XRANGE",
}
_LEAD: Grants = {
    "leader": "DEL GET PEXPIRE PTTL SET",
    "epoch": "GET INCR",
    "schedule": "HGET HINCRBY HMGET HSET",
    "revisions": "HGET HGETALL HKEYS HLEN HSET",
    "marks": "HGET HGETALL HLEN HSET",
    "paused": "HEXISTS HGETALL HMGET",
    "runs": "HGET HSET",
    "runs_by_hand": "HGET",
    "ledger": "XADD XLEN",
    "queue": "LLEN RPUSH",
    "bodies": "HEXISTS HLEN HMGET HSETNX",
    "awaited": "SCARD SREM",
}
_BALANCE: Grants = {
    "balance_off": "EXISTS GET",
    "allowance": "GET MGET SET",
    "hold": "MGET",
    "decisions": "XADD XLEN XREVRANGE",
    "measures": "HGETALL",
    "quota": "ZCARD ZREMRANGEBYSCORE",
}
_ACT: Grants = {
    "processes": "HDEL",
    "processes_seen": "ZREM",
    "paused": "HDEL HSET",
    "ledger": "XADD",
    "runs_by_hand": "HSET",
    "queue": "RPUSH",
    "bodies": "HSET HSETNX",
    "awaited": "SREM",
    "dead": "ZREM",
    **dict.fromkeys(("dead_bodies", "dead_details"), "HDEL"),
    "hold": "GETDEL SET",
    "balance_off": "DEL SET",
    "allowance": "DEL",
    "decisions": "XADD",
    "audit": "XADD",
    "quota": "ZREMRANGEBYSCORE",
}
_HASH, _STRING = "HEXISTS HGET HGETALL HKEYS HLEN HMGET HSCAN", "EXISTS GET MGET PTTL"
_LIST, _STREAM = "LLEN LPOS LRANGE", "XLEN XRANGE XREVRANGE"
_ZSET, _SET = "ZCARD ZCOUNT ZMSCORE ZRANGE ZRANGEBYSCORE ZREVRANGE ZSCORE", "SCARD SISMEMBER SMEMBERS"
_LOOK: Grants = {
    **dict.fromkeys(("bodies", "stock_bodies", "dead_bodies", "dead_details", "losses", "deaths", "beats"), _HASH),
    **dict.fromkeys(("workers", "catalogue", "schedule", "revisions", "marks", "paused", "runs"), _HASH),
    **dict.fromkeys(("runs_by_hand", "processes", "flow", "prefetched", "readings", "alerts"), _HASH),
    **dict.fromkeys(("chains", "measures"), _HASH),
    **dict.fromkeys(("queue", "suspects", "stock_queue"), _LIST),
    **dict.fromkeys(("dead", "due", "held", "heartbeats", "processes_seen", "quota"), _ZSET),
    **dict.fromkeys(("acks", "awaited"), _SET),
    **dict.fromkeys(("ledger", "entry_runs", "history", "decisions", "audit"), _STREAM),
    **dict.fromkeys(("leader", "epoch", "parked", "allowance", "hold", "balance_off", "one_at_a_time"), _STRING),
}
GRANTED: dict[Role, tuple[Grants, ...]] = {
    "producer": (_SEND, _CATALOGUE),
    "worker": (_SEND, _TURN, _REAP, _REAP_STOCK, _TRIM, _SERVE, _SEED, _REPORT, _PROBE),
    "beat": (_LEAD, _BALANCE, _SEED, _REPORT, _PROBE),
    "console": (_LOOK, _ACT),
    "doctor": (_LOOK, {"processes": "HDEL", "processes_seen": "ZREM", "any": "EXISTS HLEN ZCARD"}),
}
_CONNECT = "auth hello ping select client|setinfo client|setname multi exec discard unwatch time script|load evalsha"
_HEARS = "subscribe unsubscribe"
ON_NO_KEY: dict[Role, str] = {
    "producer": f"{_CONNECT} publish",
    "worker": f"{_CONNECT} publish {_HEARS}",
    "beat": f"{_CONNECT} publish {_HEARS}",
    "console": f"{_CONNECT} publish",
    "doctor": f"{_CONNECT} info config|get scan",
}
