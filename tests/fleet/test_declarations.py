"""A declaration that cannot stand is refused where it is written, with the value in the message."""

from __future__ import annotations

import re
from datetime import UTC, time, timedelta
from typing import Any, cast

import pytest

from fleet import All, Budget, Elastic, Entry, Lane, Retry, queue
from fleet.errors import BudgetInvalid, DeclarationInvalid
from fleet.reasons import reason_says_something
from fleet.workers.board_slot import QUEUE_BYTES

SECOND = timedelta(seconds=1)
REASON = "two pages of 90 days at the bank's p99"
BUDGET = Budget(SECOND, 2 * SECOND, because=REASON)
RETRY = Retry(attempts=3, first=SECOND, longest=timedelta(minutes=1))
LANE: dict[str, Any] = {
    "name": "bank",
    "queues": ["bank"],
    "waits_for": "a bank",
    "processes": 1,
    "threads": 1,
    "budget": BUDGET,
    "retry": RETRY,
}
ENTRY: dict[str, Any] = {
    "name": "audit",
    "expires": SECOND,
    "because": "banks have closed their day",
    "cron": "0 1 * * *",
}


@pytest.mark.parametrize("soft", [None, timedelta(0), -SECOND, timedelta.max, float("inf"), 60])
@pytest.mark.parametrize("limit", ["soft", "hard"])
def test_a_limit_that_is_no_positive_span_up_to_a_week_is_refused_by_name(limit: str, soft: Any) -> None:
    limits = {"soft": SECOND, "hard": 2 * SECOND, limit: soft}
    with pytest.raises(BudgetInvalid, match=rf"Budget\({limit}="):
        Budget(**limits, because=REASON)


def test_a_budget_of_exactly_a_week_stands() -> None:
    assert Budget(timedelta(days=6), timedelta(days=7), because=REASON).hard == timedelta(days=7)


@pytest.mark.parametrize("hard", [SECOND, SECOND / 2])
def test_soft_must_be_shorter_than_hard(hard: timedelta) -> None:
    with pytest.raises(BudgetInvalid, match="soft must be shorter than hard"):
        Budget(SECOND, hard, because=REASON)


@pytest.mark.parametrize(
    "because",
    [
        *("", "   ", "300 seconds", "5m", "5 minutes is long enough", "timeout of 60s", "the deadline", "ok", "OCR"),
        *("three hundred seconds", "Five Minutes Max", "12345", "…", None, 300),
    ],
)
def test_a_reason_that_is_empty_or_says_the_number_again_is_refused(because: Any) -> None:
    with pytest.raises(BudgetInvalid, match="say what the time is spent on"):
        Budget(SECOND, 2 * SECOND, because=because)


def test_a_reason_in_another_language_says_something() -> None:
    assert reason_says_something("zwei Seiten à 90 Tage")


@pytest.mark.parametrize("budget", [None, 60, SECOND, "5m"])
def test_an_actor_takes_a_budget_or_leaves_it_out_but_never_none(budget: Any) -> None:
    with pytest.raises(BudgetInvalid, match="leave it out to take the lane's"):
        queue("somewhere").actor(budget=budget)


def test_an_actor_declared_twice_is_refused_with_the_place_of_the_first() -> None:
    def declared_once_only() -> None: ...

    queue("elsewhere").actor(declared_once_only)
    with pytest.raises(DeclarationInvalid, match=r"declared already, at .*test_declarations\.py:\d+"):
        queue("elsewhere").actor(declared_once_only)


def test_an_actors_name_may_be_said_in_stocks_word_and_not_in_both() -> None:
    def job() -> None: ...

    assert queue("elsewhere").actor(actor_name="said_in_stocks_word")(job).actor_name == "said_in_stocks_word"
    with pytest.raises(DeclarationInvalid, match=r"actor\(name='a', actor_name='b'\): give one of the two"):
        queue("elsewhere").actor(name="a", actor_name="b")


@pytest.mark.parametrize("option", ["queue_name", "broker"])
def test_what_stocks_decorator_is_given_and_a_queue_is_not_is_refused_with_what_to_say_instead(option: str) -> None:
    with pytest.raises(DeclarationInvalid, match=f"there is no {option} here; an actor is of .*(queue|process_broker)"):
        queue("elsewhere").actor(**{option: "reports"})  # type: ignore[call-overload]


def test_a_queue_name_that_no_board_has_room_for_is_refused() -> None:
    assert queue("q" * QUEUE_BYTES).name
    with pytest.raises(DeclarationInvalid, match="65 letters; give a name of 64 at most"):
        queue("q" * (QUEUE_BYTES + 1))


@pytest.mark.parametrize("name", ["", "a:b", "a b", "1a", "ä"])
def test_a_queue_name_that_cannot_be_a_redis_key_is_refused(name: str) -> None:
    with pytest.raises(DeclarationInvalid, match="letters, digits, dashes"):
        queue(name)


@pytest.mark.parametrize(
    "wrong",
    [
        {"queues": []},
        {"queues": "bank"},
        {"processes": 0},
        {"threads": 0},
        {"prefetch": 0},
        {"threads": 2, "prefetch": 1},
        {"nice": -1},
        {"nice": 20},
        {"drain": timedelta(0)},
        {"drain": 30},
        {"dead_kept_for": timedelta(0)},
        {"dead_kept_most": 0},
        {"budget": None},
        {"retry": None},
    ],
    ids=str,
)
def test_a_lane_that_cannot_stand_is_refused_by_its_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(DeclarationInvalid, match=r"^Lane\('bank'"):
        Lane(**{**LANE, **wrong})


def test_a_lane_keeps_its_queues_in_order_and_for_good() -> None:
    assert Lane(**{**LANE, "queues": ["b", "a"]}).queues == ("b", "a")


@pytest.mark.parametrize(
    "wrong",
    [
        {"cron": None},
        {"every": SECOND},
        {"cron": None, "every": timedelta(milliseconds=999)},
        {"cron": None, "every": 60},
        {"expires": timedelta(0)},
        {"expires": None},
        {"because": "at 1 hour"},
        {"because": None},
        {"tz": "Europe/Atlantis"},
        {"tz": "../etc/passwd"},
        {"tz": ""},
        {"catch_up": 3},
        {"catch_up": None},
        {"overlap": True},
        {"jitter": SECOND},
        {"jitter": -SECOND},
        {"jitter": 0},
        {"catch_up": All(2), "overlap": "skip"},
    ],
    ids=str,
)
def test_an_entry_that_cannot_stand_is_refused_by_its_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(DeclarationInvalid, match=r"^Entry\('audit'"):
        Entry(**{**ENTRY, **wrong})


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ({"catch_up": "lastest"}, "give 'latest', 'none' or All(n). Did you mean 'latest'?"),
        ({"catch_up": "non"}, "Did you mean 'none'?"),
        ({"catch_up": "all(3)"}, "give 'latest', 'none' or All(n)."),
        ({"overlap": "skipp"}, "give 'allow', 'skip'. Did you mean 'skip'?"),
    ],
)
def test_a_choice_that_there_is_not_is_answered_with_those_that_there_are(wrong: dict[str, Any], meant: str) -> None:
    with pytest.raises(DeclarationInvalid, match=re.escape(meant)):
        Entry(**{**ENTRY, **wrong})


@pytest.mark.parametrize("most", [0, -1, 1_001, True, 2.0, "3", None])
def test_a_catch_up_on_no_slot_or_on_too_many_is_refused(most: Any) -> None:
    with pytest.raises(DeclarationInvalid, match=r"^All\("):
        All(most)


def test_an_entry_without_an_actor_sends_the_one_of_its_own_name() -> None:
    assert Entry(**ENTRY).actor == "audit"
    assert Entry(**ENTRY, actor="nightly").actor == "nightly"


@pytest.mark.parametrize(
    "wrong",
    [{"attempts": 0}, {"first": timedelta(0)}, {"first": timedelta(hours=1)}, {"longest": timedelta.max}, {"first": 1}],
    ids=str,
)
def test_a_retry_shape_that_cannot_stand_is_refused(wrong: dict[str, Any]) -> None:
    shape: dict[str, Any] = {"attempts": 3, "first": SECOND, "longest": timedelta(minutes=1), **wrong}
    with pytest.raises(DeclarationInvalid, match=r"^Retry\("):
        Retry(**shape)


def test_an_interval_with_parts_of_a_millisecond_is_refused() -> None:
    odd = timedelta(seconds=10, microseconds=501)
    with pytest.raises(DeclarationInvalid, match="give whole milliseconds"):
        Entry("odd", every=odd, expires=timedelta(seconds=9), because="slots that lie between milliseconds")


ELASTIC: dict[str, Any] = {
    "window": (time(22, 30), time(6, 15)),
    "day": time(6, 30),
    "slot": time(4),
    "backlog": "books.categorizing:backlog",
    "chunk": 20,
    "cap": 2,
    "because": "banks have closed their day, and offices open later",
}


def test_an_elastic_window_may_pass_over_midnight() -> None:
    assert Entry(**ENTRY, elastic=Elastic(**ELASTIC)).elastic == Elastic(**{**ELASTIC, "window": [*ELASTIC["window"]]})


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("window", time(1), r"Elastic\(window=.*give \(opens, deadline\)"),
        ("window", (time(1), time(1)), "must lie inside the window"),
        ("window", (time(1), "6:00"), r"Elastic\(window='6:00'\): give a time of day"),
        ("slot", time(22), "must lie inside the window"),
        ("slot", time(6, 15), "must lie inside the window"),
        ("slot", time(4, tzinfo=UTC), "without a zone"),
        ("day", time(6), "the day begins at the deadline or after it"),
        ("backlog", "books.categorizing", "name a function that counts"),
        ("backlog", "books.categorizing:", "name a function that counts"),
        ("chunk", 0, r"Elastic\(chunk=0\): give a whole number"),
        ("chunk", True, r"Elastic\(chunk=True\)"),
        ("cap", 65, r"Elastic\(cap=65\): give a whole number, 1 to 64"),
        ("quota", "", r"Elastic\(quota=''\)"),
        ("because", "20 rows", r"Elastic\(because="),
    ],
)
def test_an_elastic_declaration_that_cannot_stand_is_refused_by_name(field: str, value: Any, said: str) -> None:
    with pytest.raises(DeclarationInvalid, match=said):
        Elastic(**{**ELASTIC, field: value})


def test_what_is_elastic_is_said_by_an_elastic() -> None:
    with pytest.raises(DeclarationInvalid, match="give Elastic"):
        Entry(**ENTRY, elastic=cast(Any, "yes"))
