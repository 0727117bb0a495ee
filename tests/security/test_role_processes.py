"""A whole fleet, each process as the user of its role, does all that it does, and nothing of it is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import fleet
from fleet.broker import FleetBroker, keys
from fleet.broker.grants import Role
from fleet.broker.roles import Own
from tests.broker.conftest import OwnRedis
from tests.fleet.post import Post
from tests.security.processes import Processes, fast_night, processes
from tests.security.users import Users
from tests.waiting import wait_until

OWN = Own("own", ("keeping", "work"), ("keep", "sorts", "ticks"), ("sorts",), ("model",))
LIMIT = 60


@pytest.fixture
def users(own_redis: OwnRedis) -> Users:
    return Users(own_redis, OWN)


@pytest.fixture
def running(users: Users, tmp_path: Path, migrated_url: str) -> Iterator[Processes]:
    night = fast_night(60)
    with processes(
        tmp_path,
        FLEET_NAMESPACE="own",
        FLEET_DATABASE_URL=migrated_url,
        TEST_JOURNAL=str(tmp_path / "journal"),
        **night,
    ) as made:
        for lane in ("work", "keeping"):
            made.start("work", lane, FLEET_REDIS_URL=users.url("worker"))
        made.start("beat", FLEET_REDIS_URL=users.url("beat"))
        yield made


def journal(running: Processes) -> list[str]:
    path = Path(running.settings["TEST_JOURNAL"])
    return path.read_text().splitlines() if path.exists() else []


def send(users: Users, post: Post) -> None:
    """By every way that there is, as a producer."""
    broker = FleetBroker(url=users.url("producer"), namespace="own", middleware=[])
    for name in ("did", "stumbles", "doomed", "kills", "placed", "parks", "sends"):
        post.actor(name, "work").send(name)
    did = post.actor("late", "work")
    did.actor_name = "did"
    did.send_with_options(args=("delayed",), delay=200)
    assert broker.enqueue_calls(did, [("many",), ("many",)]) == 2
    with post.session() as s, s.begin():
        did.send_on_commit(s, "committed")
    connection = fleet.connect(users.url("producer"), namespace="own")
    wait_until(lambda: users.admin.hexists(keys.catalogue("own"), "did"), LIMIT)
    connection.send("did", "by name")


def test_a_whole_fleet_runs_as_the_users_of_its_roles_and_is_refused_nothing(
    users: Users, running: Processes, migrated_url: str
) -> None:
    post = Post(users.url("producer"), migrated_url, "own")
    send(users, post)
    wanted = {f"did {name}" for name in ("did", "delayed", "many", "committed", "by name", "sent-sends", "many-sends")}
    wanted |= {"stumbles stumbles", "doomed doomed", "placed placed", "parks parks", "sorted chunk", "ticks slot"}
    wait_until(lambda: users.refused() or wanted <= set(journal(running)), LIMIT)
    assert users.refused() == []
    dead = keys.dead_details("own", "work")
    wait_until(lambda: users.admin.hlen(dead) == 2, LIMIT)
    reasons = {json.loads(raw)["reason"].split(":")[0] for raw in users.admin.hvals(dead)}
    assert reasons == {"failed", "poison"}
    kept = (keys.readings("own"), keys.history("own"), keys.decisions("own", "sorts"), keys.entry_runs("own", "keep"))
    more = (keys.measures("own", "sorts"), keys.chains("own", "sorts"), keys.ledger("own", "ticks"))
    for key in (*kept, *more, keys.leader("own"), keys.processes("own")):
        wait_until(lambda key=key: users.admin.exists(key), LIMIT)
    running.stop()
    assert users.admin.get(keys.leader("own")) is None
    assert users.refused() == []
    for sign in ("NOPERM", "refused", "Traceback", "unanswered", "unread"):
        assert sign not in running.said().replace("ValueError", ""), running.said()
    post.close()


@pytest.mark.parametrize(
    ("words", "role", "lacks"), [(["work", "work"], "producer", "worker"), (["beat"], "worker", "beat")]
)
def test_a_process_with_another_roles_user_ends_at_its_start_and_names_what_it_lacks(
    users: Users, tmp_path: Path, words: list[str], role: Role, lacks: Role
) -> None:
    with processes(tmp_path, FLEET_NAMESPACE="own", TEST_JOURNAL="none") as made:
        assert made.start(*words, FLEET_REDIS_URL=users.url(role)).wait(LIMIT) == 2
        said = made.said()
    assert f"lacks rights of the role '{lacks}'" in said and f"`fleet acl {lacks}`" in said
    assert "Traceback" not in said and f"secret-of-{role}" not in said


def test_the_doctor_as_its_roles_user_sees_all_and_is_refused_nothing(users: Users, tmp_path: Path) -> None:
    with processes(tmp_path, FLEET_NAMESPACE="own", TEST_JOURNAL="none") as made:
        doctor = made.start("doctor", FLEET_REDIS_URL=users.url("doctor"))
        doctor.wait(LIMIT)
        said = made.said()
    assert "may not" not in said and "lacks rights" not in said and "appendfsync always" in said
    assert users.refused() == []
