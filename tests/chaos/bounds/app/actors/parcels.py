"""Rows that a job holds while it works, and the ways in which it does not end: `how` is the row's own."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from dramatiq import Message
from sqlalchemy import text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from config.lanes import LEASE
from fleet import queue
from fleet.actor import current_delivery, current_message_id
from fleet.storage import leases, session
from fleet.storage.leases import Lease

LONG = 60  # seconds; beyond every bound here
VANISHED = Path(__file__).with_name("vanished")  # made by the job that takes its host down: one host vanishes, once
parcels = queue("parcels")


class Base(DeclarativeBase): ...


class Parcel(Lease, Base):
    """`how` says what its job does: see `work`."""

    __tablename__ = "parcels"
    id: Mapped[int] = mapped_column(primary_key=True)
    how: Mapped[str]


def lost(message: Message[Any], reason: str) -> None:
    with session() as s:  # committed by itself: what follows may hang with the row locked
        s.execute(text("INSERT INTO told (id) VALUES (:id)"), {"id": message.args[0]})
    with session() as s:
        leases.finish_lost(s, Parcel, message.args[0], message=message.message_id, status="failed", outcome=reason)


@parcels.actor(on_lost=lost)
def deliver(parcel_id: int) -> None:
    token = current_delivery()
    with session() as s:
        row = leases.claim(
            s, Parcel, parcel_id, message=current_message_id(), token=token, lease=LEASE, claimable=["queued"]
        )
    if row is None:
        return
    work(row.how)
    with session() as s:
        leases.finish(s, Parcel, parcel_id, token=token, status="done", outcome="It is delivered.")


def work(how: str) -> None:
    if how == "slow":  # leaves at its soft budget
        for _ in range(LONG * 100):
            time.sleep(0.01)
    elif how == "deaf":  # in C, where nothing can be raised
        time.sleep(LONG)
    elif how == "gil":
        ctypes.PyDLL(None).sleep(LONG)
    elif how == "dies":
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "host" and not VANISHED.exists():  # all of it, once: a machine loses its power
        time.sleep(0.3)
        VANISHED.touch(exist_ok=False)
        supervisor = next(one for one in psutil.Process().parents() if "work" in one.cmdline())
        for one in [supervisor, *supervisor.children(recursive=True)]:
            if one.pid != os.getpid():
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        time.sleep(0.2)
