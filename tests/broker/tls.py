"""TLS in front of a Redis that has none: authorities, certificates, and a proxy on loopback that ends TLS."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

_EXTENSIONS = """
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = critical, CA:FALSE
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""


@dataclass(frozen=True)
class Signed:
    certificate: Path
    key: Path


class Authority:
    """Signs certificates, valid for a day; by the openssl program."""

    def __init__(self, folder: Path, name: str) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("there is no openssl program to make certificates with")
        self._folder, self._name = folder, name
        self._own = self._sign("authority", "authority", "", None)
        self.certificate = self._own.certificate

    def sign(self, name: str, *, names: str = "DNS:localhost, IP:127.0.0.1") -> Signed:
        return self._sign(name, "leaf", names, self._own)

    def _sign(self, name: str, section: str, names: str, by: Signed | None) -> Signed:
        path = self._folder / f"{self._name}-{name}"
        signed = Signed(path.with_suffix(".pem"), path.with_suffix(".key"))
        extensions = path.with_suffix(".cnf")
        extensions.write_text(_EXTENSIONS.format(names=names or "DNS:authority"))
        _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(signed.key))
        request = path.with_suffix(".csr")
        _openssl("req", "-new", "-key", str(signed.key), "-subj", f"/CN={self._name} {name}", "-out", str(request))
        signer = (
            ["-CA", str(by.certificate), "-CAkey", str(by.key), "-CAcreateserial"]
            if by
            else ["-signkey", str(signed.key)]
        )
        command = ["x509", "-req", "-in", str(request), "-days", "1", "-extfile", str(extensions)]
        _openssl(*command, "-extensions", section, *signer, "-out", str(signed.certificate))
        return signed


def _openssl(*command: str) -> None:
    subprocess.run(["openssl", *command], check=True, capture_output=True)


class TlsProxy:
    """Takes TLS on a free port and passes what is said on to a port without; in use as a context."""

    def __init__(self, target: int, server: Signed, *, clients_of: Authority | None = None) -> None:
        self._target = target
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(server.certificate, server.key)
        if clients_of is not None:
            self._context.load_verify_locations(clients_of.certificate)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0
        self.taken = 0

    def __enter__(self) -> Self:
        self._thread.start()
        made = asyncio.start_server(self._take, "127.0.0.1", 0, ssl=self._context)
        server = asyncio.run_coroutine_threadsafe(made, self._loop).result(5)
        self.port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._cancel(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _cancel(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.taken += 1
        behind, before = await asyncio.open_connection("127.0.0.1", self._target)
        await asyncio.gather(_pass_on(reader, before), _pass_on(behind, writer))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while said := await reader.read(1 << 16):
            writer.write(said)
            await writer.drain()
    writer.close()
