"""What each role of a fleet may do on Redis: the least ACL user for who sends, works, beats, looks on, or examines.

A role is a table (`fleet.broker.grants`): which commands on which keys. From it come the line that `fleet acl` prints,
and what a process asks for at its start (`fleet.broker.rights`). Commands on the same keys share a selector, so that a
right to read one key is none to read another. The root of the user holds what touches no key, and EVALSHA on the
namespace: a script runs with its caller's rights, and each of its commands is judged by the selectors, so that EVALSHA
alone is a right to nothing.

Not guaranteed: anything within a key. Who may send to a queue may send any message of any actor of it; who may write
letters' details may write anything there. A line names queues and entries: a new one of either needs the line anew,
before the release that has it. A stock Dramatiq producer or worker is none of these roles.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.broker import keys
from fleet.broker.grants import GRANTED, ON_NO_KEY, READ_AND_WRITE, READS, Role

if TYPE_CHECKING:
    from fleet.broker.broker import FleetBroker


@dataclass(frozen=True)
class Own:
    """The names that a fleet's keys are made of: the application's."""

    namespace: str
    queues: tuple[str, ...]
    entries: tuple[str, ...]
    elastic: tuple[str, ...]
    quotas: tuple[str, ...]


def own_of(broker: FleetBroker) -> Own:
    """The names of the application that a broker was loaded for."""
    elastic = [name for name, entry in broker.entries.items() if entry.elastic is not None]
    names = (broker.lanes, broker.entries, elastic, broker.quotas)
    return Own(broker.namespace, *(tuple(sorted(some)) for some in names))


def acl_line(role: Role, own: Own, user: str) -> str:
    """The command that makes an ACL user of a role, or makes it anew; `PASSWORD` stands for the password."""
    words: list[str] = ["on", ">PASSWORD", "resetkeys", "resetchannels", "clearselectors", "-@all"]
    words += [f"+{command}" for command in ON_NO_KEY[role].split()]
    words += [f"~{_literal(own.namespace)}:*", *(f"&{_literal(channel)}" for channel in _channels(role, own))]
    return " ".join(["ACL SETUSER", user, *words, *_selectors(role, own)])


def asked(role: Role, own: Own) -> list[list[str]]:
    """Every command of a role on every key that it is for, as words; none of them is given to try it."""
    places = _places(own, str, "x")
    on_keys = [
        [command, *_around(command, key)]
        for command, names in _by_command(role).items()
        for name in sorted(names)
        for key in places[name]
    ]
    channels = [[command, c, *([""] if command == "PUBLISH" else [])] for command, c in _said(role, own)]
    return [*on_keys, *channels, *(words.upper().replace("|", " ").split() for words in _plain(role))]


def _selectors(role: Role, own: Own) -> Iterable[str]:
    """One for all commands on the same keys."""
    places = _places(own, _literal, "*")
    sharing: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for command, names in _by_command(role).items():
        found = sorted({key for name in names for key in places[name]})
        if found:
            sharing[_access(command), tuple(found)].append(command.lower())
    for (access, shared), commands in sorted(sharing.items(), key=lambda item: item[1]):
        yield f"({' '.join([*(f'+{one}' for one in sorted(commands)), *(f'{access}~{key}' for key in shared)])})"


def _by_command(role: Role) -> dict[str, set[str]]:
    """Command -> places: what is given on two keys at once must be allowed on both by one selector."""
    found: dict[str, set[str]] = defaultdict(set)
    for grants in GRANTED[role]:
        for place, commands in grants.items():
            for command in commands.split():
                found[command].add(place)
    return found


def _access(command: str) -> str:
    return "%R" if command in READS else "" if command in READ_AND_WRITE else "%W"


def _places(own: Own, literal: Callable[[str], str], other: str) -> Mapping[str, list[str]]:
    """Place -> its keys, those of stock's delay queues as `stock_…`; `other` where only who runs knows the name."""
    ns = literal(own.namespace)
    queues, entries, elastic = ([literal(name) for name in names] for names in (own.queues, own.entries, own.elastic))
    stock = [keys.delayed(queue) for queue in queues]
    of_queue = (keys.queue, keys.bodies, keys.due, keys.dead, keys.dead_bodies, keys.dead_details, keys.suspects)
    of_losses = (keys.losses, keys.deaths, keys.one_at_a_time)
    of_beat = (keys.leader, keys.epoch, keys.schedule, keys.revisions, keys.marks, keys.paused, keys.runs)
    of_workers = (keys.heartbeats, keys.beats, keys.awaited, keys.workers, keys.outbox, keys.relay_turn, keys.catalogue)
    of_reading = (keys.prefetched, keys.readings, keys.history, keys.alerts, keys.processes, keys.processes_seen)
    of_people = (keys.runs_by_hand, keys.balance_off, keys.audit)
    of_elastic = (keys.allowance, keys.hold, keys.decisions, keys.chains)
    return {
        **{place.__name__: [place(ns, queue) for queue in queues] for place in (*of_queue, *of_losses)},
        **{f"stock_{place.__name__}": [place(ns, queue) for queue in stock] for place in (keys.queue, keys.bodies)},
        **{place.__name__: [place(ns)] for place in (*of_beat, *of_workers, *of_reading, *of_people)},
        **{place.__name__: [place(ns, entry) for entry in elastic] for place in (*of_elastic, keys.measures)},
        **{place.__name__: [place(ns, entry) for entry in entries] for place in (keys.ledger, keys.entry_runs)},
        **{place.__name__: [place(ns, other)] for place in (keys.sender, keys.turn, keys.tombstone, keys.parked)},
        **{place.__name__: [place(ns, other, queue) for queue in queues] for place in (keys.acks, keys.held)},
        **{f"stock_{place.__name__}": [place(ns, other, queue) for queue in stock] for place in (keys.acks, keys.held)},
        "flow": [keys.flow(ns, 0).removesuffix("0") + other],
        "quota": [keys.quota(ns, literal(name), other) for name in own.quotas],
        "any": [keys.queue(ns, other)],
    }


def _literal(name: str) -> str:
    """A name within a pattern. No pattern may hold a space: any one sign stands for it."""
    return "".join("?" if sign.isspace() else f"\\{sign}" if sign in "*?[]^\\" else sign for sign in name)


def _channels(role: Role, own: Own) -> list[str]:
    wake, leader = keys.wake(own.namespace), keys.leader(own.namespace)
    return {"beat": [wake, leader], "doctor": []}.get(role, [wake])


def _said(role: Role, own: Own) -> Iterable[tuple[str, str]]:
    commands = [command.upper() for command in ON_NO_KEY[role].split() if command in ("publish", "subscribe")]
    return [(command, channel) for channel in _channels(role, own) for command in commands]


def _plain(role: Role) -> list[str]:
    """What is asked of the commands without keys; a connection that is open was let in already."""
    more = {
        "script|load": "script|load x",
        "evalsha": "evalsha x 0",
        "select": "select 0",
        "config|get": "config|get x",
    }
    more |= {"scan": "scan 0"}
    untold = ("publish", "subscribe", "auth", "hello", "client|setinfo", "client|setname")
    return [more.get(command, command) for command in ON_NO_KEY[role].split() if command not in untold]


_MORE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("EXPIRE", "HDEL", "HEXISTS", "HGET", "HMGET", "LPOS", "LPUSH", "PEXPIRE", "RPUSH", "SADD"), ("1",)
    ),
    **dict.fromkeys(("HSCAN", "SET", "SISMEMBER", "SREM", "ZMSCORE", "ZREM", "ZSCORE"), ("1",)),
    **dict.fromkeys(
        ("LRANGE", "HSET", "HSETNX", "HINCRBY", "ZADD", "ZRANGE", "ZRANGEBYSCORE", "ZREVRANGE"), ("0", "1")
    ),
    **dict.fromkeys(("ZCOUNT", "ZREMRANGEBYSCORE", "XRANGE", "XREVRANGE"), ("-", "+")),
    "XADD": ("*", "field", "value"),
}


def _around(command: str, key: str) -> list[str]:
    """A command's words behind its name: the key, and arguments that it could have."""
    return [key, *_MORE.get(command, ())]
