"""Messages made from a template are the messages that Dramatiq would have made."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from dramatiq.message import Message

from fleet.broker import bulk

ARGUMENTS: list[tuple[Any, ...]] = [(), (1,), ('ä\x00\n"', None), ({"a": [1.5, True]}, "\\u0000id"), ("[]",)]


def test_the_bytes_are_those_of_a_message_of_dramatiqs_but_for_the_time() -> None:
    for arguments, (one, encoded) in zip(ARGUMENTS, bulk.encode_calls("q", "a", ARGUMENTS), strict=True):
        made = Message.decode(encoded)
        assert (made.message_id, made.options) == (one, {"redis_message_id": one})
        like = Message("q", "a", arguments, {}, {"redis_message_id": one}, one, made.message_timestamp)
        assert encoded == like.encode()


def test_every_message_has_a_random_uuid_of_its_own() -> None:
    ids = [one for one, _ in bulk.encode_calls("q", "a", [()] * 1_000)]
    assert len(set(ids)) == 1_000
    assert all(str(uuid.UUID(one)) == one and uuid.UUID(one).version == 4 for one in ids)
    assert all(uuid.UUID(one).variant == uuid.RFC_4122 for one in ids)


def test_a_sequence_that_is_no_tuple_is_taken_as_a_message_takes_it() -> None:
    ((_, encoded),) = bulk.encode_calls("q", "a", ["ab"])
    assert json.loads(encoded)["args"] == ["a", "b"]


def test_arguments_that_are_not_json_are_refused_as_by_send() -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        bulk.encode_calls("q", "a", [(object(),)])
