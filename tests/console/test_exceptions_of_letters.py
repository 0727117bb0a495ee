"""What the console shows of a dead letter's exception: scrubbed with what its arguments show, and cut after that."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from dramatiq import Message

from fleet.broker.dead import LONGEST_EXCEPTION, DeadLetter, Place
from fleet.console import letters
from fleet.workers.thread import details

DESK: Any = SimpleNamespace(app=SimpleNamespace(actors={}))


def dead(exception: str) -> DeadLetter:
    message: Message[Any] = Message("books", "sync", (17, "Ada Lovelace"), {}, {})
    return DeadLetter(Place("books", "1"), datetime.now(UTC), message, {"exception": exception})


def listed(exception: str) -> str:
    ((_, shown),) = letters.listed(DESK, [dead(exception)])
    return shown


def test_what_is_known_from_the_arguments_is_hidden_in_a_list_as_on_the_letters_page() -> None:
    assert listed("ValueError: no account of Ada Lovelace") == "ValueError: no account of [removed]"


def test_a_list_cuts_behind_what_it_hides_and_never_in_it() -> None:
    for at in range(90, 125):
        for secret in ("DE89370400440532013000", "Ada Lovelace", "e@example.de"):
            shown = listed("x" * at + " " + secret)
            assert len(shown) <= 120 and not {"DE8", "Ada", "e@e"} & {shown[at + 1 :][:3]}


def test_what_the_letter_itself_has_cut_in_half_is_not_shown() -> None:
    text = "x " * 240 + "DE89370400440532013000"
    shown = letters.exception_of(dead(text[:LONGEST_EXCEPTION]), None)
    assert "DE89" not in shown and shown.endswith("[cut]")


def test_what_a_frame_shows_to_be_personal_is_not_in_the_letter_that_is_listed() -> None:
    def book(customer: str) -> None:
        raise ValueError(f"nothing for {customer}")

    message: Any = Message("books", "sync", (17,), {}, {})
    somebody = "Erika Musterfrau"  # a line of code stays as it is
    try:
        book(somebody)
    except ValueError as error:
        kept = details(message, error, "worker")
    letter = DeadLetter(Place("books", "1"), datetime.now(UTC), message, json.loads(kept))
    ((_, shown),) = letters.listed(DESK, [letter])
    assert shown == "ValueError('nothing for [removed]')" and b"Erika" not in kept
    assert b", in book" in kept


def test_a_letter_keeps_whole_lines_of_a_traceback() -> None:
    error = ValueError("\n".join(f"Ada Lovelace {number}" for number in range(1_000)))
    kept = details(Message("books", "sync", (), {}, {}), error, "worker").decode()  # type: ignore[arg-type]
    assert '"traceback": "Ada Lovelace' in kept
