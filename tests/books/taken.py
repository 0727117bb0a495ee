"""What waits in the queues, given to its work as a worker would, in this process; a message that ran may come again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dramatiq import Message
from sqlalchemy import func, update

from books import attachments, batches, importing, summaries
from fleet.app import process_broker
from fleet.broker import keys
from fleet.relay import relay
from fleet.storage import database, session
from fleet.storage.tables import OutboxRow

WORK: Mapping[str, Callable[..., None]] = {
    "import_csv": importing.import_csv,
    "extract_batch": batches.extract_batch,
    "extract_data_from_attachment": attachments.extract,
    "mail_summary": summaries.send,
}


def waiting(*actors: str) -> list[Message[Any]]:
    """Messages to these actors, oldest first; they stay where they are."""
    broker = process_broker()
    found = []
    for queue in ("housekeeping", "uploads"):
        bodies: Any = broker.client.hvals(keys.bodies(broker.namespace, queue))
        found += [message for body in bodies if (message := Message.decode(body)).actor_name in actors]
    return sorted(found, key=lambda message: message.message_timestamp)


def run(messages: list[Message[Any]]) -> None:
    """Do the work of each, under its own message id."""
    for message in messages:
        WORK[message.actor_name](*message.args, token=message.message_id)


def deliver() -> None:
    """Have what a crash left in the outbox relayed, and run every message until none is new."""
    with session() as s:
        s.execute(update(OutboxRow).values(relay_at=func.now()))
    relay(database(), process_broker())
    ran: set[str] = set()
    while new := [message for message in waiting(*WORK) if message.message_id not in ran]:
        run(new)
        ran |= {message.message_id for message in new}


def about(actor: str, rows: Mapping[Any, Any] | set[int]) -> Iterator[Message[Any]]:
    """Those of an actor's messages whose first argument is one of these."""
    return (message for message in waiting(actor) if message.args[0] in rows)
