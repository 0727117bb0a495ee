"""A row whose job hangs in C in its first run, and in its second ends once the test says so."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from dramatiq import Message
from sqlalchemy import text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from config.lanes import HUNG, LEASE
from fleet import queue
from fleet.actor import current_delivery, current_message_id
from fleet.storage import leases, session
from fleet.storage.leases import Lease

jobs = queue("jobs")


class Base(DeclarativeBase): ...


class Parcel(Lease, Base):
    __tablename__ = "parcels"
    id: Mapped[int] = mapped_column(primary_key=True)


def until(gate: Path) -> None:
    while not gate.exists():
        time.sleep(0.05)


def lost(message: Message[Any], reason: str) -> None:
    with session() as s:
        s.execute(text("INSERT INTO told (id) VALUES (:id)"), {"id": message.args[0]})
        leases.finish_lost(s, Parcel, message.args[0], message=message.message_id, status="failed", outcome=reason)


@jobs.actor(budget=HUNG, on_lost=lost)
def deliver(parcel_id: int, folder: str) -> None:
    token, message = current_delivery(), current_message_id()
    with session() as s:
        row = leases.claim(s, Parcel, parcel_id, message=message, token=token, lease=LEASE, claimable=["queued"])
    if row is None:
        return
    if row.attempts == 1:
        time.sleep(120)
    until(Path(folder) / "second")
    with session() as s:
        if not leases.finish(s, Parcel, parcel_id, token=token, status="done", outcome="the second run"):
            raise RuntimeError("the second run lost its row")


@jobs.actor
def neighbour(folder: str) -> None:
    (Path(folder) / "runs").write_text(str(os.getpid()))
    until(Path(folder) / "neighbour")
