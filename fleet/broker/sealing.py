"""A message that is ready to be sent, and how many of them Redis is given at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from dramatiq.message import Message

from fleet.errors import MessageTooDeep, MessageTooLarge

T = TypeVar("T")
Sealed = tuple[str, str, bytes]
"""A message that is ready to be sent: its queue, its Redis id, its bytes."""

LARGEST_MESSAGE = 1024 * 1024
LARGEST_RETRY = LARGEST_MESSAGE + 64 * 1024  # it carries a traceback that its first run did not
_SHORT_TRACEBACK = 5_000  # characters, of at most 12 bytes in JSON
DEEPEST_ARGUMENT = 64  # levels of lists and mappings; Python's own JSON gives up at about a thousand, in mid-air
_NESTS = (list, tuple, dict)
# A round trip of many messages: bounds memory here and the script's time there.
CHUNK, CHUNK_BYTES = 500, 4 * 1024 * 1024


def id_and_bytes(message: Message[Any], largest: int = LARGEST_MESSAGE) -> tuple[str, bytes]:
    """A message's Redis id and bytes, or `MessageTooLarge`, or `MessageTooDeep`."""
    check_depth(message)
    encoded = message.encode()
    check_size(message.actor_name, encoded, largest)
    return message.options["redis_message_id"], encoded


def bytes_of_retry(message: Message[Any]) -> bytes:
    """The bytes of a message that comes again; a traceback that has no room beside it is cut. Raises as the above."""
    try:
        return id_and_bytes(message, LARGEST_RETRY)[1]
    except MessageTooLarge:
        kept = str(message.options.get("traceback"))[-_SHORT_TRACEBACK:]
        cut = kept.partition("\n")[2]  # whole lines: of half a line nobody can tell what stood in it
        return id_and_bytes(message.copy(options={"traceback": cut}), LARGEST_RETRY)[1]


def check_size(actor: str, encoded: bytes, largest: int = LARGEST_MESSAGE) -> None:
    """Raise `MessageTooLarge` for what no broker here takes."""
    if len(encoded) > largest:
        raise MessageTooLarge(actor, len(encoded), largest)


def check_depth(message: Message[Any]) -> None:
    """Raise `MessageTooDeep` for arguments that are nested deeper than anybody means to."""
    level: list[Any] = [value for value in (*message.args, *message.kwargs.values()) if isinstance(value, _NESTS)]
    depth = 0
    while level:
        depth += 1
        if depth > DEEPEST_ARGUMENT:
            raise MessageTooDeep(message.actor_name, DEEPEST_ARGUMENT)
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [value for values in inner for value in values if isinstance(value, _NESTS)]


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
