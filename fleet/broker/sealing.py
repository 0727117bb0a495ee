"""A message that is ready to be sent, and how many of them Redis is given at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from dramatiq.message import Message

from fleet.errors import MessageTooLarge

T = TypeVar("T")
Sealed = tuple[str, str, bytes]
"""A message that is ready to be sent: its queue, its Redis id, its bytes."""

LARGEST_MESSAGE = 1024 * 1024
# A round trip of many messages: bounds memory here and the script's time there.
CHUNK, CHUNK_BYTES = 500, 4 * 1024 * 1024


def id_and_bytes(message: Message[Any]) -> tuple[str, bytes]:
    """A message's Redis id and bytes, or `MessageTooLarge`."""
    encoded = message.encode()
    check_size(message.actor_name, encoded)
    return message.options["redis_message_id"], encoded


def check_size(actor: str, encoded: bytes) -> None:
    """Raise `MessageTooLarge` for what no broker here takes."""
    if len(encoded) > LARGEST_MESSAGE:
        raise MessageTooLarge(actor, len(encoded), LARGEST_MESSAGE)


def chunks(items: Iterable[T], encoded: Callable[[T], bytes]) -> Iterator[list[T]]:
    """Runs of messages that are bounded in number and in bytes."""
    chunk: list[T] = []
    size = 0
    for one in items:
        chunk.append(one)
        size += len(encoded(one))
        if len(chunk) == CHUNK or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
