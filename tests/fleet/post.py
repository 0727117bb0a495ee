"""An application's rows with an outbox beside them, and where their messages are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import dramatiq
import redis
from dramatiq.middleware import Middleware
from sqlalchemy import Engine, create_engine, select, text, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from fleet.actor import FleetActor
from fleet.broker import FleetBroker, keys
from fleet.storage.engine import psycopg_url
from fleet.storage.tables import OutboxRow

QUEUE = "work"


class Base(DeclarativeBase):
    """The application's tables."""


class Order(Base):
    """A row that a message belongs to."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    namespace: Mapped[str]
    name: Mapped[str]


class Post:
    """A broker, an actor that ships orders, and sessions of the database."""

    def __init__(
        self,
        redis_url: str,
        database_url: str,
        namespace: str,
        *middleware: Middleware,
        client: redis.Redis | None = None,
        **pool: Any,
    ) -> None:
        self.broker = FleetBroker(url=redis_url, client=client, namespace=namespace, middleware=list(middleware))
        self.engine: Engine = create_engine(psycopg_url(database_url), **pool)
        Base.metadata.create_all(self.engine)
        self.ship = self.actor("ship", QUEUE)

    def actor(self, name: str, queue: str) -> FleetActor[Any, Any]:
        """An actor by name, on a queue by name."""
        made: FleetActor[Any, Any] = dramatiq.actor(  # type: ignore[call-overload]
            lambda *_: None, actor_class=FleetActor, actor_name=name, queue_name=queue, broker=self.broker
        )
        return made

    def session(self) -> Session:
        return Session(self.engine)

    def order(self, s: Session, name: str, send: Callable[..., Any] | None = None) -> None:
        """Write an order and the message that ships it."""
        s.add(Order(namespace=self.broker.namespace, name=name))
        (send or self.ship.send_on_commit)(s, name)

    def orders(self) -> list[str]:
        """The names of the orders that were committed."""
        asked = select(Order.name).where(Order.namespace == self.broker.namespace).order_by(Order.id)
        with self.session() as s:
            return list(s.scalars(asked))

    def queued(self, queue: str = QUEUE) -> list[Any]:
        """The first argument of each message that waits, in order."""
        namespace, client = self.broker.namespace, self.broker.client
        ids: Any = client.lrange(keys.queue(namespace, queue), 0, -1)
        bodies: Any = client.hgetall(keys.bodies(namespace, queue))
        return [dramatiq.Message.decode(bodies[id]).args[0] for id in ids]

    def rows(self, *, accepted: bool = False) -> list[OutboxRow]:
        """What waits in the outbox; `accepted` for what Redis has and is kept for a while."""
        with self.session() as s:
            asked = select(OutboxRow).where(OutboxRow.namespace == self.broker.namespace)
            which = OutboxRow.accepted_at.is_not(None) if accepted else OutboxRow.accepted_at.is_(None)
            return list(s.scalars(asked.where(which).order_by(OutboxRow.id)))

    def age(self, by: timedelta = timedelta(seconds=10)) -> None:
        """Let the rows of the outbox be older than they are."""
        earlier = {"written_at": OutboxRow.written_at - by, "relay_at": OutboxRow.relay_at - by}
        with self.engine.begin() as connection:
            connection.execute(update(OutboxRow).where(OutboxRow.namespace == self.broker.namespace).values(earlier))

    def close(self) -> None:
        """Remove its rows."""
        with self.engine.begin() as connection:
            for table in ("outbox", "orders"):
                connection.execute(text(f"DELETE FROM {table} WHERE namespace = :it"), {"it": self.broker.namespace})
        self.engine.dispose()
        self.broker.client.close()

    def connections(self) -> int:
        """How many connections the database has."""
        with self.engine.connect() as connection:
            counted = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
            return int(connection.scalar(counted) or 0)
