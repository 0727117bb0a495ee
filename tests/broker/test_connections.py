"""A message's whole life over a unix socket, in another database, in a namespace, and as a user with few rights."""

from __future__ import annotations

import re
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import dramatiq
import pytest
import redis

import fleet
from fleet.broker import FleetBroker, keys, rights
from fleet.broker.broker import NotAccepted
from fleet.broker.connection import client_from, shown
from fleet.catalogue import publish_catalogue
from fleet.errors import ServerRefused, SettingsInvalid
from fleet.servers import require_broker
from fleet.settings import Settings
from tests.broker.conftest import OwnRedis
from tests.broker.life import live
from tests.broker.station import QUEUE, Station, places
from tests.broker.turns import Turns, fetched
from tests.waiting import wait_until

Keep = Callable[[Station], Station]
ROOT = Path(__file__).parents[2]
PASSWORD = "p@ss:/w?#rd%"
ENCODED = "p%40ss%3A%2Fw%3F%23rd%25"


@pytest.fixture
def socket(own_redis: OwnRedis) -> Iterator[str]:
    """The path of a socket that `own_redis` listens on; a short one, since the kernel takes 107 characters."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        own_redis.stop()
        own_redis.start("--unixsocket", f"{folder}/redis.sock")
        yield f"{folder}/redis.sock"


def test_a_whole_life_over_a_unix_socket_in_another_database(socket: str, own_redis: OwnRedis, stations: Keep) -> None:
    live(stations(Station(f"unix://{socket}?db=2", "own")))
    with own_redis.client as admin:
        assert set(admin.info("keyspace")) == {"db2"}
        [subscription] = admin.client_list(_type="pubsub")
        assert socket in subscription["addr"]


def test_the_database_of_the_url_is_the_only_one_that_is_used(own_redis: OwnRedis, stations: Keep) -> None:
    live(stations(Station(own_redis.url.replace("/0", "/7"), "own")))
    with own_redis.client as admin:
        assert set(admin.info("keyspace")) == {"db7"}


def test_two_namespaces_on_one_database_do_not_see_one_another(own_redis: OwnRedis, stations: Keep) -> None:
    ran: list[str] = []
    one, other = (stations(Station(own_redis.url, name)) for name in ("one", "other"))
    for station in (one, other):
        station.actor(lambda name, at=station.namespace: ran.append(f"{name} at {at}"), actor_name="note")
    other.work()
    publish_catalogue(one.broker)
    fleet.connect(own_redis.url, namespace="one").send("note", "a")
    fleet.connect(own_redis.url, namespace="other").send("note", "b")
    wait_until(lambda: ran)
    assert ran == ["b at other"]
    one.work()
    wait_until(lambda: len(ran) == 2)
    assert ran == ["b at other", "a at one"]
    with own_redis.client as admin:
        assert {key.split(b":")[0] for key in admin.keys("*")} == {b"one", b"other"}
        assert set(admin.pubsub_channels()) == {keys.wake(name).encode() for name in ("one", "other")}


def test_the_namespace_of_the_settings_is_the_brokers(own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_REDIS_URL", own_redis.url)
    monkeypatch.setenv("FLEET_NAMESPACE", "night")
    broker = FleetBroker(Settings.read, middleware=[])
    assert broker.namespace == "night"
    broker.enqueue(message())
    with own_redis.client as admin:
        assert set(admin.keys(f"*{QUEUE}*")) == {b"night:work", b"night:work.msgs"}


@pytest.mark.parametrize("form", re.findall(r"^\| `([a-z+]+://[^`…]+)` \|", (ROOT / "docs/redis.md").read_text(), re.M))
def test_the_settings_and_the_broker_take_every_form_that_is_documented(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_REDIS_URL", re.sub(r"\?ssl_ca_certs=.*", "", form))
    assert FleetBroker(Settings.read, middleware=[]).client.connection_pool.connection_kwargs


def documented(namespace: str) -> list[str]:
    """The rights that docs/redis.md gives a user, for a namespace."""
    [line] = re.findall(r"^ACL SETUSER nightshift on >PASSWORD (.*)$", (ROOT / "docs/redis.md").read_text(), re.M)
    return line.replace("dramatiq", namespace).split()


def one_by_one(namespace: str) -> list[str]:
    """The commands that are asked for at the start, and not one more."""
    asked = {"|".join(words[:2] if words[0] == "SCRIPT" else words[:1]) for words in rights._asked(namespace)}
    return [f"~{namespace}:*", f"&{namespace}:*", *(f"+{words}" for words in sorted(asked))]


def wide(namespace: str) -> list[str]:
    return [f"~{namespace}:*", f"&{namespace}:*", "+@all", "-@dangerous"]


class User:
    """An ACL user whose rights a test sets."""

    def __init__(self, server: OwnRedis, admin: redis.Redis) -> None:
        self._admin = admin
        self.url = f"redis://nightshift:{ENCODED}@127.0.0.1:{server.port}/0"
        self.wrong = self.url.replace(ENCODED, "s3cret")

    def may(self, *what: str) -> None:
        words = ["ACL", "SETUSER", "nightshift", "reset", "on", f">{PASSWORD}", "resetchannels", *what]
        self._admin.execute_command(*words)

    def broker(self, url: str | None = None) -> FleetBroker:
        return FleetBroker(url=url or self.url, namespace="own", middleware=[])


@pytest.fixture
def user(own_redis: OwnRedis) -> Iterator[User]:
    with own_redis.client as admin:
        yield User(own_redis, admin)


@pytest.mark.parametrize("rights_of", [documented, one_by_one, wide])
def test_a_whole_life_as_a_user_with_no_more_than_the_documented_rights(
    user: User, stations: Keep, rights_of: Callable[[str], list[str]]
) -> None:
    user.may(*rights_of("own"))
    station = stations(Station(user.url, "own"))
    require_broker(station.broker)
    live(station)
    with pytest.raises(redis.exceptions.NoPermissionError):
        station.broker.client.get("other:work")
    with pytest.raises(redis.exceptions.NoPermissionError):
        station.broker.client.publish("other:fleet:wake", "work")
    with pytest.raises(redis.exceptions.NoPermissionError):
        station.broker.client.keys()


def test_every_command_of_every_script_is_among_the_rights_that_are_asked_for() -> None:
    scripts = [*(ROOT / "fleet/broker/lua").glob("*.lua"), *(ROOT / "beat").glob("*.lua")]
    given = {name for path in scripts for name in re.findall(r'(?:redis\.call|ask)\("(\w+)"', path.read_text())}
    assert len(given) > 25
    assert given <= {words[0] for words in rights._asked("own")}


@pytest.mark.parametrize(
    ("taken", "named"),
    [
        (["~own:*", "&own:*", "+@all", "-@dangerous", "-publish", "-zscore"], "'own': ZSCORE, PUBLISH on the channel"),
        (["~own:*", "&other:*", "+@all"], "'own': PUBLISH on the channel own:fleet:wake, SUBSCRIBE on the channel"),
        (["~other:*", "&own:*", "+@all"], "'own': all commands on the keys own:*, GET;"),
        (["~own:fleet:*", "&own:*", "+@all"], "'own': GET;"),
        (["~own:*", "&own:*", "+@all", "-@scripting"], "'evalsha' command"),
        (["off"], "refused the user or password"),
    ],
)  # fmt: skip
def test_rights_that_are_missing_are_all_named_before_anything_starts(user: User, taken: list[str], named: str) -> None:
    user.may(*taken)
    with pytest.raises(ServerRefused) as raised:
        require_broker(user.broker())
    assert named in str(raised.value)
    assert "docs/redis.md" in str(raised.value) or "Check both" in str(raised.value)
    assert PASSWORD not in str(raised.value) and ENCODED not in str(raised.value)


def test_a_send_with_a_wrong_password_says_so_once_and_at_once_without_it(user: User) -> None:
    user.may(*documented("own"))
    with pytest.raises(NotAccepted, match="refused the user or password of FLEET_REDIS_URL") as raised:
        user.broker(user.wrong).enqueue(message())
    assert "s3cret" not in str(raised.value)
    with pytest.raises(ServerRefused, match="refused the user or password of FLEET_REDIS_URL") as refused:
        require_broker(user.broker(user.wrong))
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("taken", [["-evalsha"], ["resetkeys", "~other:*"], ["resetchannels", "&other:*"]])
def test_a_send_without_the_right_to_it_says_where_the_rights_stand(user: User, taken: list[str]) -> None:
    user.may(*documented("own"), *taken)
    with pytest.raises(NotAccepted, match=r"refused a right to the user.*docs/redis\.md"):
        user.broker().enqueue(message())


def test_a_user_without_channels_leaves_nothing_half_written(user: User, own_redis: OwnRedis) -> None:
    user.may(*documented("own"))
    broker = user.broker()
    turns = Turns(broker.client, broker.own_scripts, "own", "a worker")
    broker.enqueue(message(), delay=0)
    with own_redis.client as admin:
        before = places(admin, "own")
        user.may(*documented("own"), "resetchannels")
        with pytest.raises(NotAccepted):
            broker.enqueue(message())
        with pytest.raises(redis.exceptions.NoPermissionError):
            turns.take(1)
        assert places(admin, "own") == before
        user.may(*documented("own"))
        assert [id for id, _ in fetched(turns.repeat())] == list(before)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://:s3cret@host", "must begin with one of redis://"),
        ("s3cret@host", "must begin with"),
        ("redis://:s3cret/x@host", "bare @"),
        ("redis://:s3cret#x@host", "bare @"),
        ("redis://:s3cret?x@host", "bare @"),
        ("redis://:s3cret@host:port/0", "malformed"),
        ("redis://:s3cret@host:99999/0", "malformed"),
        ("redis://:s3cret[@host/0", "malformed"),
        ("redis://:s3cret@host/zero", "database is no number"),
        ("redis://:s3cret@host/0?socket_timeout=long", "'socket_timeout'"),
        ("redis://:s3cret@host/0?timeot=1", "option 'timeot'; known here are db"),
        ("redis://:s3cret@host/0?ssl_ca_certs=/ca.pem", "ssl_ca_certs needs rediss://"),
        ("redis://:s3cret@host/0?sentinel_password=s3cret", "option 'sentinel_password'"),
        ("rediss://:s3cret@host/0?ssl_ca_certs=/nowhere/ca.pem", "/nowhere/ca.pem, cannot be used: No such file"),
        ("rediss://:s3cret@host/0?ssl_keyfile=/key.pem", "needs ssl_certfile"),
        ("rediss://:s3cret@host/0?ssl_cert_reqs=maybe", "Requirements Flag: maybe"),
        ("unix://run/redis.sock", "three slashes"),
        ("unix://:s3cret@", "three slashes"),
        ("redis+sentinel://:s3cret@host:26379", "is redis+sentinel://host:26379,other:26379/NAME/0"),
        ("redis+sentinel://:s3cret@/night/0", "is redis+sentinel://host"),
        ("redis+sentinel://:s3cret@host:26379/night/x", "database is no number"),
        ("redis+sentinel://:s3cret@host:26379/night/0/1", "database is no number"),
        ("redis+sentinel://:s3cret@one,host:x/night/0", "sentinel number 2 is no host:port"),
        ("redis+sentinel://:s3cret@host:/night/0", "sentinel number 1 is no host:port"),
        ("redis+sentinel://:s3cret@one,,two/night/0", "sentinel number 2 is no host:port"),
        ("redis+sentinel://:s3cret@::1:26379/night/0", "sentinel number 1 is no host:port"),
        ("redis+sentinel://:s3cret/night/0", "sentinel number 1 is no host:port"),
        ("redis+sentinel://:s3cret/x@host/night/0", "bare @"),
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_being_repeated(url: str, why: str) -> None:
    with pytest.raises(SettingsInvalid) as raised:
        client_from(url)
    assert why in str(raised.value)
    assert "FLEET_REDIS_URL" in str(raised.value)
    assert "s3cret" not in str(raised.value)
    assert "s3cret" not in "".join(traceback.format_exception(raised.value)).replace(f"client_from({url!r})", "")


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("redis://a:s3cret@host:1/0", "redis://a:***@host:1/0"),
        ("redis://:s3cret@host", "redis://:***@host"),
        ("unix:///run/redis.sock?db=2", "unix:///run/redis.sock?db=2"),
        ("unix://a:s3cret@/run/s?password=s3cret&db=2", "unix://a:***@/run/s?password=***&db=2"),
        ("redis+sentinel://a:s3cret@h:1,[::1]:2/n/0?sentinel_password=s3cret", "redis+sentinel://a:***@h:1,[::1]:2/n/0?sentinel_password=***"),
    ],
)  # fmt: skip
def test_a_url_is_shown_with_stars_for_its_passwords(url: str, seen: str) -> None:
    assert shown(url) == seen


def message() -> dramatiq.Message[None]:
    return dramatiq.Message(queue_name=QUEUE, actor_name="note", args=(), kwargs={}, options={})
