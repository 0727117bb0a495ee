"""What tests of slot claims share: the message of a slot, a database that can be taken away, the rows."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select

from fleet import app as application
from fleet import wire
from fleet.broker import keys
from fleet.settings import Settings
from fleet.storage import engine as storage
from fleet.storage import session
from fleet.storage.slots import entry_of
from fleet.storage.tables import Slot

SLOT = datetime(2026, 3, 2, 1, tzinfo=UTC)
OF_SLOT: dict[str, Any] = {wire.ENTRY: "nightly", wire.SLOT: wire.to_ms(SLOT)}


def forget_database() -> None:
    """Drop this process's engine and its sessions, as the root's `environment` does."""
    storage.database.cache_clear()
    storage._sessions.cache_clear()


def configure(house: Any, monkeypatch: pytest.MonkeyPatch, database_url: str) -> None:
    settings = Settings(
        redis_url=application.settings().redis_url, namespace=house.broker.namespace, database_url=database_url
    )
    if storage.database.cache_info().currsize:
        storage.database().dispose()
    monkeypatch.setattr(application, "settings", lambda: settings)
    forget_database()


@contextmanager
def refused_port() -> Iterator[str]:
    """The URL of a database that is down: a port that is bound, and not listened on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"postgresql://nobody@127.0.0.1:{taken.getsockname()[1]}/nothing"


def rows() -> list[Slot]:
    with session() as s:
        return list(s.scalars(select(Slot).order_by(Slot.entry)))


def entry(row: Slot) -> str | None:
    """The entry that a row names, if it is one of this process's fleet."""
    return entry_of(application.settings().namespace, row.entry)


def said(logs: list[Any], event: str) -> list[Any]:
    return [line for line in logs if line["event"] == event]


def delayed(house: Any) -> int:
    return int(house.broker.client.zcard(keys.due(house.broker.namespace, "work")))
