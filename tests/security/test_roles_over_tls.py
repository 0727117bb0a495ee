"""TLS and a user a role at once, as production has them: each role's rights, and a message from user to user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.broker import keys
from fleet.broker.grants import ROLES, Role
from fleet.errors import ServerRefused
from fleet.servers import require_broker
from tests.broker.conftest import OwnRedis
from tests.broker.conftest import stations as stations
from tests.broker.station import QUEUE, Station
from tests.broker.tls import Authority, TlsProxy
from tests.security.test_roles import NS, OWN, broker_of
from tests.security.users import Users
from tests.waiting import wait_until

Url = Callable[[Role], str]


@pytest.fixture
def url(own_redis: OwnRedis, tmp_path: Path) -> Iterator[Url]:
    """A role's URL at a Redis behind TLS that wants a client's certificate."""
    authority = Authority(tmp_path, "ours")
    client = authority.sign("client", names="DNS:client")
    Users(own_redis, OWN)
    with TlsProxy(own_redis.port, authority.sign("server"), clients_of=authority) as proxy:
        options = f"ssl_ca_certs={authority.certificate}&ssl_certfile={client.certificate}&ssl_keyfile={client.key}"
        yield lambda role: f"rediss://fleet-{role}:secret-of-{role}@127.0.0.1:{proxy.port}/0?{options}"


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_its_rights_over_tls(url: Url, role: Role) -> None:
    require_broker(broker_of(url(role)), role)
    with pytest.raises(ServerRefused) as raised:
        require_broker(broker_of(url(role).replace("secret-of", "guess-at")), role)
    assert "guess-at" not in str(raised.value)


def test_what_a_producer_sends_over_tls_a_worker_runs_over_tls(
    url: Url, own_redis: OwnRedis, stations: Callable[[Station], Station]
) -> None:
    sender, server = (stations(Station(url(role), NS)) for role in ("producer", "worker"))
    ran: list[str] = []

    def note(name: str) -> None:
        ran.append(name)

    sent, _ = sender.actor(note, actor_name="note"), server.actor(note, actor_name="note")
    server.work()
    sent.send("now")
    sent.send_with_options(args=("later",), delay=50)
    wait_until(lambda: ran == ["now", "later"])
    wait_until(lambda: not own_redis.client.exists(keys.bodies(NS, QUEUE)))
