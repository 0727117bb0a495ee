"""Encrypts what a message carries (arguments, a retry's traceback) on its way through Redis and the outbox.

Off unless `FLEET_PAYLOAD_KEYS` names Fernet keys (AES-128-CBC with HMAC-SHA256, from `cryptography`). The first key
encrypts, all of them decrypt: put a new key first, and take the old one off when nothing sealed by it is left. What is
sealed is bound to the message's id and actor, so that one message's arguments cannot be put into another.

It is the encoder and no middleware, since a middleware's hooks see messages, and what lies in Redis are bytes that the
outbox, retries, dead letters and exports write too. Without keys the bytes are Dramatiq's own.

Not guaranteed: anything about what else a message shows, its queue, actor, entry, size and times; nor about dead
letters' exceptions, which stand beside the letter for a person to read. On failure: a message that no key here opens
raises `PayloadSealed`; a worker makes it a dead letter, whole, that can be requeued once it has the key. Who moves
messages and runs none (dead letters, the outbox's relay) moves what is sealed without a key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dramatiq import Message
from dramatiq.encoder import JSONEncoder, MessageData
from dramatiq.errors import DecodeError

from fleet.errors import FleetError, SettingsInvalid

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

    from fleet.settings import Settings

SEALED = "sealed"
"""The option that holds the token; arguments are empty beside it."""
_TRACEBACK = "traceback"


class PayloadSealed(FleetError):
    """Raised when a message's arguments are encrypted and cannot be opened here."""


class PayloadEncoder(JSONEncoder):
    """Dramatiq's JSON, with the arguments sealed where there are keys; `keys` is asked at the first message.

    With `seal` answering False it opens and does not seal: the first step of a roll-out, workers before senders.
    """

    def __init__(self, keys: Callable[[], Sequence[str]], seal: Callable[[], bool] = lambda: True) -> None:
        self._keys, self._seal = keys, seal

    @cached_property
    def _cipher(self) -> MultiFernet | None:
        return cipher_of(self._keys())

    @cached_property
    def seals(self) -> bool:
        """Whether what is encoded here is sealed."""
        return self._cipher is not None and self._seal()

    def encode(self, data: MessageData) -> bytes:
        if not self.seals:
            return super().encode(data)
        assert self._cipher is not None
        options = dict(data["options"])
        inner = [data["message_id"], data["actor_name"], data["args"], data["kwargs"], options.pop(_TRACEBACK, None)]
        token = self._cipher.encrypt(super().encode(inner)).decode()  # type: ignore[arg-type]
        # First, since who reads a long message's end alone (the probe) looks there for when it was due.
        return super().encode({**data, "args": (), "kwargs": {}, "options": {SEALED: token, **options}})

    def decode(self, data: bytes) -> MessageData:
        message = super().decode(data)
        options = message.get("options") if isinstance(message, dict) else None
        if isinstance(options, dict) and SEALED in options:
            return self._opened(message, options)
        return message

    def _opened(self, message: MessageData, options: dict[str, Any]) -> MessageData:
        from cryptography.fernet import InvalidToken

        subject = f"Message {message.get('message_id')} of {message.get('actor_name')}"
        if self._cipher is None:
            raise PayloadSealed(f"{subject} has encrypted arguments, and FLEET_PAYLOAD_KEYS is not set here.")
        try:
            id, actor, args, kwargs, traceback = json.loads(self._cipher.decrypt(str(options[SEALED]).encode()))
        except (InvalidToken, ValueError) as error:
            raise PayloadSealed(
                f"{subject} has encrypted arguments that none of the keys in FLEET_PAYLOAD_KEYS opens. Was a key "
                f"taken off too early? Add it behind the others, then requeue the dead letter."
            ) from error
        if (id, actor) != (message.get("message_id"), message.get("actor_name")):
            raise PayloadSealed(f"{subject} has the encrypted arguments of message {id} of {actor}.")
        rest = {name: value for name, value in options.items() if name != SEALED}
        if traceback is not None:
            rest[_TRACEBACK] = traceback
        return {**message, "args": args, "kwargs": kwargs, "options": rest}


def as_it_lies(body: bytes) -> Message[Any]:
    """A message for who moves it and runs nothing: one that no key here opens keeps its seal, and has no arguments.

    Raises what `Message.decode` raises for any other that cannot be read.
    """
    try:
        return Message.decode(body)
    except DecodeError as error:
        if not isinstance(error.error, PayloadSealed):
            raise
        return Message(**JSONEncoder().decode(body))


def is_sealed(message: Message[Any]) -> bool:
    """Whether a message is still sealed: `as_it_lies` could not open it."""
    return SEALED in message.options


def as_it_lay(message: Message[Any]) -> bytes:
    """The bytes of a message that `as_it_lies` gave: what is still sealed under the seal that it has."""
    return JSONEncoder().encode(message.asdict()) if is_sealed(message) else message.encode()


def fingerprints(keys: Sequence[str], *, seals: bool) -> tuple[str, ...]:
    """What tells keys apart and says nothing of them, in their order; a `-` before them where none of them seals."""
    of_keys = tuple(hashlib.sha256(key.encode()).hexdigest()[:8] for key in keys)
    return of_keys if seals or not keys else ("-", *of_keys)


def own_fingerprints(settings: Settings) -> tuple[str, ...]:
    """Those of a process with these settings."""
    return fingerprints(settings.payload_keys, seals=settings.payload_seal)


def cipher_of(keys: Sequence[str]) -> MultiFernet | None:
    """What opens by any of the keys and seals by the first; None without keys. Raises `SettingsInvalid`."""
    if not keys:
        return None
    try:
        from cryptography.fernet import Fernet, MultiFernet
    except ImportError:
        raise SettingsInvalid(
            "FLEET_PAYLOAD_KEYS is set, and the package cryptography is missing: "
            "in the checkout, pip install '.[encryption]'."
        ) from None
    made = []
    for number, key in enumerate(keys, start=1):
        try:
            made.append(Fernet(key))
        except ValueError:
            raise SettingsInvalid(
                f"FLEET_PAYLOAD_KEYS: key {number} of {len(keys)} is no Fernet key (32 bytes in URL-safe base64, 44 "
                f"characters). Make one with: python -c 'from cryptography.fernet import Fernet; "
                f"print(Fernet.generate_key().decode())'"
            ) from None
    return MultiFernet(made)
