"""Each role's user may do what its processes ask for at their start, and is denied what it does not need."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import redis

from fleet.broker import FleetBroker, keys
from fleet.broker.grants import ROLES, Role
from fleet.broker.roles import Own, acl_line, asked
from fleet.errors import ServerRefused
from fleet.servers import require_broker
from tests.broker.conftest import OwnRedis
from tests.security.users import Users

NS, APP, ROOT = "own", Path(__file__).parent / "app", Path(__file__).parents[2]
OWN = Own(NS, ("keeping", "work"), ("keep", "sorts", "ticks"), ("sorts",), ("model",))
BODIES, DEAD, HELD = keys.bodies(NS, "work"), keys.dead(NS, "work"), keys.held(NS, "w", "work")
LEADER, EPOCH, MARKS, PAUSED = keys.leader(NS), keys.epoch(NS), keys.marks(NS), keys.paused(NS)
DENIED: dict[Role, list[tuple[str, ...]]] = {
    "producer": [
        *[("HGET", BODIES, "id"), ("HGETALL", BODIES), ("HDEL", BODIES, "id"), ("HSET", BODIES, "id", "forged")],
        *[("LPOP", keys.queue(NS, "work")), ("LRANGE", keys.queue(NS, "work"), "0", "-1"), ("DEL", BODIES)],
        *[("ZRANGE", DEAD, "0", "-1"), ("HGETALL", keys.dead_bodies(NS, "work")), ("ZREM", DEAD, "id")],
        *[("HGETALL", keys.dead_details(NS, "work")), ("SET", LEADER, "me"), ("GET", LEADER), ("INCR", EPOCH)],
        *[("HSET", MARKS, "ticks", "1"), ("HSET", PAUSED, "ticks", "{}"), ("HDEL", PAUSED, "ticks")],
        *[("HSET", keys.catalogue(NS), "did", "{}"), ("XADD", keys.ledger(NS, "ticks"), "*", "verdict", "fired")],
        *[("SUBSCRIBE", keys.wake(NS)), ("RPUSH", keys.queue(NS, "other"), "id"), ("SET", f"{NS}:fleet:x", "1")],
    ],
    "worker": [
        *[("SET", LEADER, "me"), ("GET", LEADER), ("DEL", LEADER), ("INCR", EPOCH), ("HSET", MARKS, "ticks", "1")],
        *[("HSET", keys.schedule(NS), "digest", "x"), ("HSET", keys.revisions(NS), "ticks", "-")],
        *[("HSET", PAUSED, "ticks", "{}"), ("SET", keys.allowance(NS, "sorts"), "9")],
        ("SET", keys.balance_off(NS), ""),
        *[("XADD", keys.ledger(NS, "ticks"), "*", "verdict", "fired"), ("HSET", keys.runs(NS), "ticks", "id")],
        *[("XADD", keys.decisions(NS, "sorts"), "*", "places", "9"), ("PUBLISH", LEADER, "")],
    ],
    "beat": [
        *[("ZREM", DEAD, "id"), ("DEL", DEAD), ("HDEL", keys.dead_bodies(NS, "work"), "id"), ("DEL", HELD)],
        *[("ZREM", HELD, "id"), ("SREM", keys.acks(NS, "w", "work"), "id"), ("HDEL", BODIES, "id")],
        *[("HGETALL", keys.dead_bodies(NS, "work")), ("HSET", PAUSED, "ticks", "{}"), ("LPOP", keys.queue(NS, "work"))],
        *[("SET", keys.hold(NS, "sorts"), "{}"), ("SET", keys.tombstone(NS, "w"), "1"), ("HGETALL", BODIES)],
        ("HDEL", keys.workers(NS), "w"),
    ],
    "console": [
        *[("SET", LEADER, "me"), ("DEL", LEADER), ("PEXPIRE", LEADER, "1"), ("INCR", EPOCH), ("PUBLISH", LEADER, "")],
        *[("HSET", MARKS, "ticks", "1"), ("HSET", keys.schedule(NS), "digest", "x"), ("HDEL", BODIES, "id")],
        *[("ZREM", HELD, "id"), ("SREM", keys.acks(NS, "w", "work"), "id"), ("DEL", HELD)],
        *[("HSET", keys.turn(NS, "w"), "number", "9"), ("SET", keys.tombstone(NS, "w"), "1")],
        *[("HSET", keys.workers(NS), "w", "[]"), ("HINCRBY", keys.beats(NS), "w", "1"), ("LPOP", f"{NS}:work")],
        *[("SET", keys.allowance(NS, "sorts"), "9"), ("HSET", keys.runs(NS), "ticks", "id"), ("DEL", keys.audit(NS))],
    ],
    "doctor": [
        *[("HSET", BODIES, "id", "forged"), ("RPUSH", keys.queue(NS, "work"), "id"), ("DEL", BODIES)],
        *[("ZREM", DEAD, "id"), ("SET", LEADER, "me"), ("HSET", PAUSED, "ticks", "{}")],
        *[("XADD", keys.audit(NS), "*", "a", "b"), ("CONFIG", "SET", "dir", "/tmp")],
        ("PUBLISH", keys.wake(NS), "work"),
    ],
}  # fmt: skip
TO_NOBODY = [
    *[("KEYS", "*"), ("FLUSHALL",), ("FLUSHDB",), ("CONFIG", "SET", "dir", "/tmp"), ("ACL", "LIST"), ("SHUTDOWN",)],
    *[("DEBUG", "SLEEP", "0"), ("EVAL", "return 1", "0"), ("SCRIPT", "FLUSH"), ("MONITOR",), ("CLIENT", "LIST")],
    *[("GET", "other:work"), ("HGETALL", "other:work.msgs"), ("REPLICAOF", "NO", "ONE"), ("MODULE", "LIST")],
]


@pytest.fixture
def users(own_redis: OwnRedis) -> Users:
    return Users(own_redis, OWN)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_denied_what_it_does_not_need_by_itself_and_within_a_script(users: Users, role: Role) -> None:
    with users.client(role) as client:
        for words in [*DENIED[role], *TO_NOBODY]:
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*words)
        for command, *more in DENIED[role]:
            if command in ("SUBSCRIBE", "CONFIG"):
                continue
            words = [command, "KEYS[1]", *(f"ARGV[{number}]" for number, _ in enumerate(more[1:], start=1))]
            script = client.script_load(f"return redis.call('{words[0]}', {', '.join(words[1:])})")
            with pytest.raises(redis.ResponseError, match="ACL failure in script"):
                client.evalsha(script, 1, *more)
    assert users.admin.dbsize() == 0


def test_what_a_role_that_is_taken_over_can_do_beside_its_errand_is_as_the_threat_model_says(users: Users) -> None:
    """Alerts are silenced, readings and costs made up, the audit's stream is forged and pushed out."""
    roles: tuple[Role, ...] = ("worker", "beat")
    for role in roles:
        with users.client(role) as client:
            client.hset(keys.readings(NS), "reading", "made up")
            client.hset(keys.alerts(NS), "queue_age:work", "made up")
            client.hdel(keys.alerts(NS), "queue_age:work")
    writers: tuple[Role, ...] = ("worker", "console")
    for role in writers:
        with users.client(role) as client:
            for who in ("ann", "nobody"):
                client.xadd(keys.audit(NS), {"who": who}, maxlen=1, approximate=False)
    with users.client("worker") as client:
        client.hincrby(keys.measures(NS, "sorts"), "cpu_us", 10**9)
        client.hdel(keys.catalogue(NS), "job")
    assert users.admin.xlen(keys.audit(NS)) == 1 and not users.admin.exists(keys.alerts(NS))


def test_the_doctor_reads_the_passwords_of_the_servers_configuration(users: Users) -> None:
    """Which no ACL can keep from whoever has CONFIG GET: hence no `requirepass`, as docs/security.md says."""
    kept = {"masterauth": "of-a-replica", "requirepass": "of-the-default-user"}
    for name, value in kept.items():
        users.admin.config_set(name, value)
    with users.client("doctor") as client:
        assert client.config_get(*kept) == kept


@pytest.mark.parametrize("role", ROLES)
def test_a_roles_user_has_all_that_its_role_asks_for_and_no_other_roles(users: Users, role: Role) -> None:
    for other in ROLES:
        broker = broker_of(users.url(role))
        if other == role or (role, other) == ("worker", "producer"):  # jobs send
            require_broker(broker, other)
        else:
            with pytest.raises(ServerRefused, match=f"lacks rights of the role '{other}'"):
                require_broker(broker, other)


def test_what_is_missing_is_named_with_the_keys_that_lack_it_and_the_line_that_gives_it(users: Users) -> None:
    smaller = replace(OWN, queues=("work",))
    users.admin.execute_command(*acl_line("worker", smaller, "fleet-worker").split())
    with pytest.raises(ServerRefused) as raised:
        require_broker(broker_of(users.url("worker")), "worker")
    said = str(raised.value)
    assert "HSETNX on own:keeping.msgs" in said or "on own:keeping" in said
    assert "own:work" not in said and "`fleet acl worker`" in said and "docs/redis.md" in said
    assert len(said) < 2_500


def test_the_command_prints_the_line_for_the_applications_own_names() -> None:
    command = [sys.executable, "-m", "fleet", "--app", str(APP), "acl"]
    printed = subprocess.run([*command, "producer", "--user", "shop"], capture_output=True, text=True).stdout
    assert printed.startswith("ACL SETUSER shop on >PASSWORD resetkeys ") and printed.count("\n") == 1
    assert "%W~dramatiq:work.msgs" in printed and "%W~dramatiq:keeping.msgs" in printed
    assert subprocess.run([*command, "king"], capture_output=True).returncode == 2


def test_the_line_that_the_docs_show_is_the_one_that_is_printed() -> None:
    command = [sys.executable, "-m", "fleet", "--app", str(ROOT / "examples/minimal"), "acl", "producer"]
    printed = subprocess.run(command, capture_output=True, text=True).stdout
    assert printed and printed in (ROOT / "docs/redis.md").read_text()


@pytest.mark.parametrize("name", ["a*", "b[1]", "c?", "d\\", "e f", "g^"])
def test_a_name_with_signs_of_patterns_gives_its_own_keys_and_no_others(own_redis: OwnRedis, name: str) -> None:
    users = Users(own_redis, replace(OWN, entries=(name,), elastic=(name,)))
    require_broker(broker_of(users.url("beat"), name), "beat")
    with users.client("beat") as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.xadd(keys.ledger(NS, name.replace("*", "b").replace("?", "bc").replace("[1]", "1") + "-x"), {"a": "b"})


def test_every_command_of_every_script_is_some_roles() -> None:
    scripts = [path for room in ("fleet", "beat") for path in (ROOT / room).rglob("*.lua") if path.stem != "export"]
    called = {name for path in scripts for name in re.findall(r'(?:redis\.p?call|ask)\("(\w+)"', path.read_text())} - {
        "PUBLISH",
        "TIME",
    }
    assert len(called) > 30
    assert called <= {words[0] for role in ROLES for words in asked(role, OWN)}


def test_every_key_of_the_engine_is_some_roles() -> None:
    words = {key for role in ROLES for command in asked(role, OWN) for key in command[1:] if key.startswith(f"{NS}:")}
    built = {key.split(":fleet:")[1].split(":")[0] for key in words if ":fleet:" in key}
    named = [one for name, one in vars(keys).items() if callable(one) and not name.startswith(("of_", "_"))]
    fleets = [
        one("ns", *["a"] * (one.__code__.co_argcount - 1)) for one in named if one.__name__ not in ("flow", "delayed")
    ]
    assert {key.split(":fleet:")[1].split(":")[0] for key in fleets if ":fleet:" in key} <= built  # fmt: skip


def broker_of(url: str, entry: str | None = None) -> FleetBroker:
    broker = FleetBroker(url=url, namespace=NS, middleware=[])
    elastic: Any = SimpleNamespace(elastic=True)
    plain: Any = SimpleNamespace(elastic=None)
    broker.lanes = MappingProxyType(dict.fromkeys(OWN.queues))  # type: ignore[arg-type]
    broker.entries = MappingProxyType({entry: elastic} if entry else {"keep": plain, "sorts": elastic, "ticks": plain})
    broker.quotas = MappingProxyType({"model": None})  # type: ignore[dict-item]
    return broker
