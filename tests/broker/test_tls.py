"""TLS from the URL: whose certificate is believed, a certificate of one's own, and whom a refusal names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from fleet.broker import FleetBroker
from fleet.broker.broker import NotAccepted
from fleet.broker.connection import client_from
from fleet.errors import ServerUnreachable, SettingsInvalid
from fleet.servers import require_broker
from tests.broker.conftest import OwnRedis
from tests.broker.life import live
from tests.broker.sentinels import Watched
from tests.broker.station import Station
from tests.broker.test_connections import message
from tests.broker.tls import Authority, TlsProxy

Keep = Callable[[Station], Station]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "theirs")


@pytest.fixture
def locked(own_redis: OwnRedis, authority: Authority) -> Iterator[TlsProxy]:
    """TLS before `own_redis` that wants a client's certificate."""
    with TlsProxy(own_redis.port, authority.sign("server"), clients_of=authority) as proxy:
        yield proxy


@pytest.fixture
def proxy(own_redis: OwnRedis, authority: Authority) -> Iterator[TlsProxy]:
    with TlsProxy(own_redis.port, authority.sign("server")) as proxy:
        yield proxy


def url(proxy: TlsProxy, authority: Authority, *more: str, host: str = "127.0.0.1") -> str:
    return f"rediss://:@{host}:{proxy.port}/0?" + "&".join([f"ssl_ca_certs={authority.certificate}", *more])


def refused(url: str) -> str:
    """What is said at the start of a process, of which a send says as much."""
    broker = FleetBroker(url=url, namespace="own", middleware=[])
    with pytest.raises(NotAccepted) as send:
        broker.enqueue(message())
    with pytest.raises(ServerUnreachable) as start:
        require_broker(broker)
    assert "CERTIFICATE" in str(send.value) or "certificate" in str(send.value)
    return str(start.value)


def test_a_whole_life_over_tls(proxy: TlsProxy, authority: Authority, stations: Keep) -> None:
    station = stations(Station(url(proxy, authority), "own"))
    require_broker(station.broker)
    live(station)
    assert proxy.taken > 2


def test_a_whole_life_with_a_certificate_of_ones_own(locked: TlsProxy, authority: Authority, stations: Keep) -> None:
    own = authority.sign("client", names="DNS:client")
    live(stations(Station(url(locked, authority, f"ssl_certfile={own.certificate}", f"ssl_keyfile={own.key}"), "own")))


def test_a_server_that_another_authority_signed_is_refused(proxy: TlsProxy, stranger: Authority) -> None:
    said = refused(url(proxy, stranger))
    assert "CERTIFICATE_VERIFY_FAILED" in said and "ssl_ca_certs" in said and "docs/redis.md" in said


def test_without_a_ca_file_only_the_systems_authorities_are_believed(proxy: TlsProxy) -> None:
    assert "CERTIFICATE_VERIFY_FAILED" in refused(f"rediss://127.0.0.1:{proxy.port}/0")


def test_the_certificate_must_name_the_host_unless_the_url_says_otherwise(
    own_redis: OwnRedis, authority: Authority
) -> None:
    with TlsProxy(own_redis.port, authority.sign("elsewhere", names="DNS:elsewhere.invalid")) as proxy:
        assert "IP address mismatch" in refused(url(proxy, authority))
        assert client_from(url(proxy, authority, "ssl_check_hostname=false")).ping()


def test_a_client_without_a_certificate_where_one_is_wanted_is_refused(
    locked: TlsProxy, authority: Authority, stranger: Authority
) -> None:
    own = stranger.sign("client", names="DNS:client")
    theirs = [f"ssl_certfile={own.certificate}", f"ssl_keyfile={own.key}"]
    for more in ([], theirs):
        with pytest.raises(redis.ConnectionError):
            client_from(url(locked, authority, *more)).ping()


def test_a_key_that_does_not_fit_or_a_file_that_holds_none_is_named_at_once(
    authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    one, other = authority.sign("one"), authority.sign("other")
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for more, named in [
        (f"ssl_certfile={one.certificate}&ssl_keyfile={other.key}", f"its key {other.key} cannot be used"),
        (f"ssl_certfile={one.certificate}&ssl_keyfile=/nowhere.key", "its key /nowhere.key cannot be used"),
        (f"ssl_ca_certs={empty}", f"ssl_ca_certs, {empty}, cannot be used"),
    ]:
        with pytest.raises(SettingsInvalid) as raised:
            client_from(f"rediss://:s3cret@host/0?{more}")
        assert named in str(raised.value) and "s3cret" not in str(raised.value)


def test_rediss_and_sentinel_speaks_tls_to_the_sentinels_and_to_the_master(
    tmp_path: Path, authority: Authority
) -> None:
    watched = Watched(tmp_path, count=1)
    try:
        with TlsProxy(watched.sentinels[0], authority.sign("sentinel"), clients_of=authority) as proxy:
            own = authority.sign("client", names="DNS:client")
            options = f"ssl_ca_certs={authority.certificate}&ssl_certfile={own.certificate}&ssl_keyfile={own.key}"
            url = f"rediss+sentinel://127.0.0.1:{proxy.port}/night/0?{options}&socket_timeout=0.5&socket_connect_timeout=0.5"
            client = client_from(url)
            found = client.connection_pool.get_master_address()  # type: ignore[attr-defined]
            assert found == ("127.0.0.1", watched.master.port)
            assert proxy.taken == 1
            with pytest.raises(redis.TimeoutError):  # this master has none, and waits for more of the handshake
                client.ping()
    finally:
        watched.stop()
