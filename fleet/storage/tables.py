"""The engine's own tables."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import BigInteger, DateTime, Identity, Index, MetaData, func
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class EngineBase(DeclarativeBase):
    """The engine's tables; an application's have a base of their own."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class SlotState(StrEnum):
    """Where the work of a slot stands; the first two are live, the others are ends."""

    RUNNING = "running"  # a worker claimed it; until `lease_until` no other fire's message starts it
    WAITING = "waiting"  # its message failed and comes again; until `lease_until` no other fire's message starts it
    DONE = "done"  # its body ended, and its message with it
    FAILED = "failed"  # its message is a dead letter
    DEADLINE = "deadline"  # its message is a dead letter, since its soft budget ended
    EXPIRED = "expired"  # its message came up after its `expires_at`; nothing ran, or nothing ran again
    SKIPPED = "skipped"  # a middleware of the application's refused its message


LIVE_STATES = (SlotState.RUNNING, SlotState.WAITING)


class Slot(EngineBase):
    """A slot whose message a worker took up: one row a (entry, slot), whose it is, and how it ended.

    `entry` is `namespace/entry`, and the entry alone in the default namespace (`fleet.storage.slots.recorded_as`).
    `nonce` is that of the fire whose message has it, `token` that of the delivery which runs (or ran) last. `fires`
    counts the fires whose messages had it, `starts` the deliveries that started it, `refused` how often a message of
    another fire was turned away: all slots with `fires = 1` and `refused = 0` were sent once. `slot` is night time, the
    other instants are real, by the database's clock.
    """

    __tablename__ = "slots"

    entry: Mapped[str] = mapped_column(primary_key=True)
    slot: Mapped[datetime] = mapped_column(DateTime(timezone=True), primary_key=True)
    state: Mapped[str]
    nonce: Mapped[str]
    token: Mapped[str]
    message_id: Mapped[str]
    lease_until: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    claimed_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now(), index=True)
    started_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    ended_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    fires: Mapped[int] = mapped_column(default=1, server_default="1")
    starts: Mapped[int] = mapped_column(default=1, server_default="1")
    refused: Mapped[int] = mapped_column(default=0, server_default="0")


class OutboxRow(EngineBase):
    """A message that goes out with a commit (`fleet.outbox`).

    `message` is what will be sent, byte for byte, under `redis_id`; `delay` are night milliseconds from `written_at`.
    `accepted_at` is when Redis took it. From `relay_at` on the relay takes the row: to send it, or, once it was
    accepted, to delete it if Redis still knows of it. `refused` says why it could not be sent, the last of `attempts`
    times.
    """

    __tablename__ = "outbox"
    __table_args__ = (Index("ix_outbox_relay", "namespace", "relay_at", "id"),)

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    namespace: Mapped[str]
    queue: Mapped[str]
    actor: Mapped[str]
    redis_id: Mapped[str]
    message: Mapped[bytes]
    delay: Mapped[int | None] = mapped_column(BigInteger)
    written_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.clock_timestamp())
    relay_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    accepted_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    attempts: Mapped[int] = mapped_column(default=0, server_default="0")
    refused: Mapped[str | None]


class AuditRow(EngineBase):
    """What a person did to a fleet (`fleet.audit`); kept for good. `at` is real time."""

    __tablename__ = "fleet_audit"
    __table_args__ = (Index("ix_fleet_audit_at", "namespace", "at"),)

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    namespace: Mapped[str]
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.clock_timestamp())
    who: Mapped[str]
    what: Mapped[str]
    subject: Mapped[str]
    because: Mapped[str]
    before: Mapped[str | None]
    after: Mapped[str | None]
