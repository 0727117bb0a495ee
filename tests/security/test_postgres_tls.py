"""PostgreSQL over TLS as docs/security.md says it: whom libpq believes, in an image whose user has no home.

The embedded PostgreSQL knows no TLS; a socket takes the handshake for it, and what the client says after that is seen.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from fleet.storage.engine import unpooled
from tests.broker.tls import Authority
from tests.conftest import ROOT

AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"  # of Debian, which the image is made of


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def heard(authority: Authority) -> Iterator[tuple[int, list[bytes]]]:
    """A port that agrees to TLS as PostgreSQL does, and what clients said behind their handshake."""
    signed, said = authority.sign("server"), list[bytes]()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed.certificate, signed.key)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with suppress(OSError):  # closed at the end of the test
                while True:
                    client = listening.accept()[0]
                    client.settimeout(5)
                    client.recv(8)
                    client.sendall(b"S")
                    with suppress(OSError), context.wrap_socket(client, server_side=True) as inside:
                        said.append(inside.recv(100))

        threading.Thread(target=answer, daemon=True).start()
        yield listening.getsockname()[1], said


def refusal(port: int, options: str) -> str:
    with pytest.raises(OperationalError) as refused:
        unpooled(f"postgresql://books:@127.0.0.1:{port}/books?sslmode=verify-full{options}").connect()
    return str(refused.value)


def test_only_a_file_of_authorities_lets_a_server_be_verified(
    heard: tuple[int, list[bytes]], authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, said = heard
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    assert "root.crt" in refusal(port, "")
    assert "certificate verify failed" in refusal(port, "&sslrootcert=system"), "the wheel's OpenSSL has none"
    assert not said
    refusal(port, f"&sslrootcert={authority.certificate}")  # it ends at once: it is no PostgreSQL
    assert b"books" in said[0], "the server was believed"


def test_the_page_names_a_file_that_the_image_has() -> None:
    assert f"sslmode=verify-full&sslrootcert={AUTHORITIES}" in (ROOT / "docs" / "security.md").read_text()
    assert "slim-bookworm" in (ROOT / "Dockerfile").read_text()
