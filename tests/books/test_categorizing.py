"""Transactions are sorted by keyword first, by the model where no keyword is found, and never twice."""

from __future__ import annotations

import json
import threading
from datetime import date, timedelta
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import pytest
import redis
from dramatiq import Message
from dramatiq.middleware import Shutdown
from sqlalchemy import TextClause, func, select, text, update

from books import categories, categorizing, clients
from books.categories import Categories
from books.model import ModelClient
from books.models import AccountStatus, BacklogTurn, BankAccount, Category, Transaction
from fleet import wire
from fleet.app import process_broker
from fleet.broker import FleetBroker, keys
from fleet.elastic import Did
from fleet.quota import Quota, place
from fleet.storage import session


@pytest.fixture
def account(migrated: object) -> int:
    with session() as s:
        for model in (Transaction, BankAccount, BacklogTurn):
            s.execute(model.__table__.delete())  # type: ignore[attr-defined]
    return account_of("c")


def account_of(customer: str) -> int:
    with session() as s:
        row = BankAccount(
            external_id=str(uuid4()), name="n", currency="EUR", customer=customer, status=AccountStatus.IDLE
        )
        s.add(row)
        s.flush()
        return row.id


def add(account: int, remittance: str, category: str | None = None) -> int:
    with session() as s:
        row = Transaction(
            account_id=account,
            external_id=str(uuid4()),
            booked=True,
            booking_date=date(2026, 3, 1),
            amount_cents=-1250,
            currency="EUR",
            remittance=remittance,
            stored_by="m",
            category_id=s.scalar(select(Category.id).where(Category.name == category)) if category else None,
        )
        s.add(row)
        s.flush()
        return row.id


def now(row: int) -> Transaction:
    with session() as s:
        return s.get_one(Transaction, row)


def sorted_into(row: int) -> tuple[str | None, str | None]:
    with session() as s:
        found = s.get_one(Transaction, row)
        name = s.scalar(select(Category.name).where(Category.id == found.category_id))
        return name, found.categorized_by


def says(category: str) -> Any:
    message = {"role": "assistant", "content": json.dumps({"category": category})}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return lambda *_: (200, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


def chunk(size: int = 20, token: str = "m1") -> bool:
    return categorizing.categorize_uncategorized(size, token=token).more


def taken(size: int, token: str) -> list[int]:
    """The rows that a chunk of this message takes to ask for."""
    return categorizing._take(size, token, f"a delivery of {token}", categories.current())[1]


def asked(world: Any) -> list[str]:
    """What the model was asked for, in order."""
    return [json.dumps(body, ensure_ascii=False) for path, _, body in world.asked if "chat/completions" in path]


def test_a_keyword_decides_without_asking_the_model(account: int, world: Any) -> None:
    row, kept = add(account, "TANKSTELLE Nr. 7"), add(account, "Tankstelle", category="Travel")
    assert categorizing.backlog() == 1
    assert chunk()
    assert sorted_into(row) == ("Fuel and vehicles", "rule")
    assert sorted_into(kept)[0] == "Travel"
    assert world.asked == []
    assert not chunk(), "nothing is left"
    assert categorizing.backlog() == 0


def test_the_model_is_asked_where_no_keyword_is_found(account: int, world: Any) -> None:
    row = add(account, "Kontoführung März")
    world.reply = says("Bank fees")
    chunk()
    assert sorted_into(row) == ("Bank fees", "model")
    chunk()
    assert world.count("chat/completions") == 1


def test_a_chunk_takes_so_many_rows_and_one_behind_it_takes_those_born_meanwhile(account: int, world: Any) -> None:
    rows = [add(account, f"Kontoführung {number}") for number in range(3)]
    world.reply = says("Bank fees")
    assert chunk(2)
    assert [sorted_into(row)[1] for row in rows] == ["model", "model", None]
    born = add(account, "Kontoführung, born while the first chunk ran")
    assert chunk(2)
    assert {sorted_into(row)[1] for row in (*rows, born)} == {"model"}


def test_a_chunk_says_how_many_rows_it_was_through_with(account: int, world: Any) -> None:
    for text_ in ("Tankstelle 1", "Tankstelle 2", "Kontoführung 1", "Kontoführung 2", "Kontoführung 3"):
        add(account, text_)
    left = iter([says("Bank fees")()])
    world.reply = lambda *_: next(left, (503, {"error": {"message": "overloaded"}}))
    assert categorizing.categorize_uncategorized(20, token="m1") == Did(False, 3, early=True)
    world.reply = says("Bank fees")
    assert categorizing.categorize_uncategorized(20, token="m1") == Did(True, 2)
    assert categorizing.categorize_uncategorized(20, token="m1") == Did(False, 0)


def test_a_row_that_the_model_cannot_sort_ends_no_chunk_and_is_parked_with_the_reason(account: int, world: Any) -> None:
    bad, good = add(account, "Zzz"), add(account, "Kontoführung")
    nonsense, right = says("Sorcery"), says("Bank fees")
    world.reply = lambda path, query, body: (nonsense if "Zzz" in json.dumps(body) else right)()
    assert chunk()
    assert sorted_into(bad) == (None, None)
    assert sorted_into(good) == ("Bank fees", "model")
    assert chunk()
    assert now(bad).unsorted_because is None
    assert chunk()
    parked = now(bad).unsorted_because or ""
    assert parked.startswith("gave up after 3 tries: run transaction:")
    assert "category should be one of those offered, found a str that is none" in parked
    assert not chunk(), "it loops no longer"
    assert categorizing.backlog() == 0


def test_a_model_that_is_away_ends_the_chunk_and_costs_no_row_a_try(account: int, world: Any) -> None:
    rows = [add(account, f"Kontoführung {number}") for number in range(3)]
    world.reply = lambda *_: (503, {"error": {"message": "overloaded"}})
    assert not chunk(), "the chain ends, and is begun again in a minute"
    assert world.count("chat/completions") == 1, "the next row is not asked for"
    assert [(now(row).sorting_tries, now(row).sorting_message) for row in rows] == [(0, None)] * 3


def test_a_row_at_which_redis_goes_away_loses_no_try(account: int, world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [add(account, f"Kontoführung {number}") for number in range(2)]

    def away(self: Any, *_: Any, **__: Any) -> str:
        raise redis.ConnectionError("Error 111 connecting to localhost:6379. Connection refused.")

    monkeypatch.setattr(ModelClient, "categorize", away)
    for _ in range(3):
        with pytest.raises(redis.ConnectionError):
            chunk()
    assert [(now(row).sorting_tries, now(row).unsorted_because) for row in rows] == [(0, None)] * 2


def test_keyword_rows_behind_those_for_a_model_that_is_away_are_sorted_all_the_same_and_then_the_others(
    account: int, world: Any
) -> None:
    others = [add(account, f"Kontoführung {number}") for number in range(30)]
    by_keyword = [add(account, f"Tankstelle {number}") for number in range(60)]
    world.reply = lambda *_: (503, {"error": {"message": "overloaded"}})
    for number in range(9):  # 30 rows are found to have no keyword, and 60 are sorted
        chunk(10, token=f"m{number}")
    assert {sorted_into(row) for row in by_keyword} == {("Fuel and vehicles", "rule")}
    assert {now(row).sorting_tries for row in others} == {0}
    world.reply = says("Bank fees")
    for number in range(3):
        assert chunk(10, token=f"m{number}")
    assert {sorted_into(row) for row in others} == {("Bank fees", "model")}


def test_keywords_are_not_tried_again_on_a_row_until_they_change(
    account: int, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = add(account, "Kontoführung")
    world.reply = lambda *_: (503, {"error": {"message": "overloaded"}})
    known, tried = categories.current(), list[str]()

    class Counting(Categories):
        def find(self, text: str) -> int | None:
            tried.append(text)
            return super().find(text)

    monkeypatch.setattr(categories, "current", lambda: Counting(known.ids, known.keywords))
    for _ in range(3):
        chunk()
    assert tried == ["Kontoführung"]
    more = (*known.keywords, ("kontoführung", known.ids["Bank fees"]))
    monkeypatch.setattr(categories, "current", lambda: Counting(known.ids, more))
    chunk()
    assert tried == ["Kontoführung"] * 2
    assert sorted_into(row) == ("Bank fees", "rule")


def test_a_rate_limit_parks_the_model_for_everybody(account: int, world: Any) -> None:
    add(account, "Kontoführung")
    world.reply = lambda *_: (429, {"error": {"message": "slow down"}})
    assert not chunk()
    broker = process_broker()
    assert broker.client.pttl(keys.parked(broker.namespace, clients.MODEL)) > 0
    assert not chunk()
    assert world.count("chat/completions") == 1


@pytest.fixture
def one_place(migrated: object, monkeypatch: pytest.MonkeyPatch) -> FleetBroker:
    """A model that answers two at once, one of them a person; and this thread is batch."""
    broker = process_broker()
    model = Quota(clients.MODEL, places=2, reserve=1, because="what this test's provider takes")
    monkeypatch.setattr(broker, "quotas", MappingProxyType({clients.MODEL: model}))
    monkeypatch.setattr("fleet.quota.for_people", lambda: False)
    return broker


def test_a_chunk_without_a_place_leaves_its_rows_in_the_backlog_and_nobody_else_parked(
    account: int, world: Any, one_place: FleetBroker
) -> None:
    row, by_keyword = add(account, "Kontoführung"), add(account, "Tankstelle")
    world.reply = says("Bank fees")
    with place(clients.MODEL, people=True):
        assert not chunk()
        assert sorted_into(by_keyword)[1] == "rule", "a keyword wants no place"
    assert (now(row).sorting_tries, now(row).sorting_message, world.asked) == (0, None, [])
    assert one_place.client.pttl(keys.parked(one_place.namespace, clients.MODEL)) < 0
    assert chunk()
    assert sorted_into(row)[1] == "model"


def test_two_chains_at_once_never_ask_for_the_same_row(account: int, world: Any) -> None:
    for number in range(24):
        add(account, f"Kontoführung {number:03}")
    together, right = threading.Barrier(4), says("Bank fees")
    world.reply = lambda *_: right()

    def drain(name: str) -> None:
        together.wait()
        while chunk(4, token=name):
            pass

    chains = [threading.Thread(target=drain, args=(f"chain {number}",)) for number in range(4)]
    for one in chains:
        one.start()
    for one in chains:
        one.join()
    questions = asked(world)
    assert (categorizing.backlog(), len(questions), len(set(questions))) == (0, 24, 24)


def test_of_two_chunks_that_were_shown_the_same_rows_one_takes_them(
    account: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [add(account, "Kontoführung") for _ in range(2)]
    monkeypatch.setattr(categorizing, "_choose", lambda *_: dict.fromkeys(rows, "c"))
    assert taken(2, "m1") == rows
    assert taken(2, "m2") == []


def killed(row: int, token: str) -> None:
    """As a chunk leaves a row that was killed while it asked for it."""
    with session() as s:
        held = {"sorting_message": token, "sorting_until": func.now() + timedelta(minutes=5), "sorting_tries": 1}
        s.execute(update(Transaction).where(Transaction.id == row).values(**held))


def test_the_rows_of_a_killed_chunk_are_its_messages_at_once_and_others_when_their_time_is_over(
    account: int, world: Any
) -> None:
    row = add(account, "Kontoführung")
    world.reply = says("Bank fees")
    killed(row, "m1")
    assert not chunk(token="m2")
    assert chunk(token="m1")
    assert sorted_into(row)[1] == "model"
    other = add(account, "Kontoführung")
    killed(other, "m1")
    with session() as s:
        s.execute(update(Transaction).values(sorting_until=func.now() - timedelta(seconds=1)))
    assert chunk(token="m2")
    assert sorted_into(other)[1] == "model"


def test_a_row_whose_worker_died_in_each_try_is_parked(account: int, world: Any) -> None:
    row = add(account, "Kontoführung")
    killed(row, "m1")
    with session() as s:
        s.execute(update(Transaction).values(sorting_tries=3))
    chunk(token="m1")
    assert now(row).unsorted_because == "gave up after 3 tries: its worker was lost in each"
    assert world.asked == []


def test_a_chunk_that_is_cut_off_gives_its_rows_back(account: int) -> None:
    row = add(account, "Kontoführung")
    killed(row, "m1")
    categorizing.categorizing_lost(Message("q", "a", (), {}, {}, message_id="m1"), "hard budget")
    assert (now(row).sorting_message, now(row).sorting_until) == (None, None)


def test_a_chunk_that_may_not_go_on_gives_back_its_own_rows_and_no_others(account: int) -> None:
    ours, theirs = add(account, "Kontoführung"), add(account, "Kontoführung")
    killed(ours, "m1")
    killed(theirs, "m2")
    categorizing.give_back("m1")
    assert (now(ours).sorting_message, now(ours).sorting_until) == (None, None)
    assert now(theirs).sorting_message == "m2"


def test_after_a_soft_deadline_only_what_that_delivery_took_is_given_back(account: int) -> None:
    row = add(account, "Kontoführung")
    assert taken(1, "m1") == [row]
    late: Message[None] = Message("q", "a", (), {}, {wire.DELIVERY: "an earlier delivery"}, message_id="m1")
    categorizing.categorizing_lost(late, "timed out")
    assert now(row).sorting_delivery == "a delivery of m1"
    late.options[wire.DELIVERY] = "a delivery of m1"
    categorizing.categorizing_lost(late, "timed out")
    assert (now(row).sorting_message, now(row).sorting_delivery, now(row).sorting_until) == (None, None, None)


def test_rows_that_the_release_before_took_are_the_next_deliverys(account: int, world: Any) -> None:
    row = add(account, "Kontoführung")
    killed(row, "m1")  # it knew of no deliveries
    world.reply = says("Bank fees")
    assert chunk(token="m1")
    assert sorted_into(row)[1] == "model"


def test_a_drain_gives_the_rows_back_and_is_no_try(account: int, world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [add(account, f"Kontoführung {number}") for number in range(2)]

    def stopped(*_: object, **__: object) -> str:
        raise Shutdown

    monkeypatch.setattr(clients.model(), "categorize", stopped)
    with pytest.raises(Shutdown):
        chunk()
    assert [(now(row).sorting_tries, now(row).sorting_message) for row in rows] == [(0, None)] * 2


def test_customers_take_turns_however_many_rows_one_of_them_has(account: int, world: Any) -> None:
    accounts = {customer: account_of(customer) for customer in ("bulk", "small 1", "small 2", "tiny")}
    whose = {add(accounts["bulk"], f"Kontoführung bulk {number}"): "bulk" for number in range(30)}
    for customer, rows in (("small 1", 3), ("small 2", 3), ("tiny", 1)):
        whose |= {add(accounts[customer], f"Kontoführung {customer} {n}"): customer for n in range(rows)}
    order = []
    for number in range(8):
        order += [whose[row] for row in taken(2, f"m{number}")]
    assert order[:8] == ["bulk", "small 1", "small 2", "tiny", "bulk", "small 1", "small 2", "bulk"]
    assert order.count("small 1") == order.count("small 2") == 3


def test_a_chunk_takes_no_more_rows_than_it_can_ask_for_and_the_next_one_goes_on_behind_them(
    account: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(categorizing, "ASKED_MOST", 3)
    whose = {}
    for customer in ("a", "b", "d", "e", "f", "g", "h"):
        of = account_of(customer)
        whose |= {add(of, f"Kontoführung {number}"): customer for number in range(2)}
        add(of, "Tankstelle")
    order = [[whose[row] for row in taken(100, f"m{number}")] for number in range(3)]
    assert order == [["a", "b", "d"], ["e", "f", "g"], ["h", "a", "b"]]
    assert categorizing.backlog() == 14, "all that a keyword sorts is sorted by the first"


def test_a_row_of_a_lone_customer_fills_the_chunk_from_all_its_accounts(account: int, world: Any) -> None:
    other = account_of("c")
    rows = [add(account, "Kontoführung") for _ in range(3)] + [add(other, "Kontoführung") for _ in range(3)]
    assert set(taken(6, "m1")) == set(rows)


def test_the_plan_finds_rows_by_index_however_many_there_are(account: int) -> None:
    """Rows of many customers: nothing is read but what is taken."""
    with session() as s:
        fill(s, customers=200, rows=40)
    for whose, shares in (categorizing._UNTRIED, categorizing._UNMATCHED):
        some = {"customers": ["customer 1", "customer 2"], "share": 10}
        indexed(whose, {"last": "", "size": 20, "keywords": 7})
        indexed(shares, {**some, "keywords": 7})


def indexed(query: TextClause, given: dict[str, Any]) -> None:
    with session() as s:
        plan = "\n".join(s.scalars(text(f"EXPLAIN {query.text}"), given))
    assert "ix_transactions_to_sort" in plan, plan
    assert "Seq Scan on transactions" not in plan, plan


def fill(s: Any, *, customers: int, rows: int) -> None:
    s.execute(
        text(
            """
            INSERT INTO bank_accounts (external_id, name, currency, customer, status)
            SELECT 'bulk ' || n, 'n', 'EUR', 'customer ' || n, 'idle' FROM generate_series(1, :customers) n
            """
        ),
        {"customers": customers},
    )
    s.execute(
        text(
            """
            INSERT INTO transactions
                (account_id, external_id, booked, booking_date, amount_cents, currency, remittance, stored_by)
            SELECT a.id, 'row ' || n, true, date '2026-03-01', -100, 'EUR', 'x', 'm'
            FROM bank_accounts a, generate_series(1, :rows) n WHERE a.external_id LIKE 'bulk %'
            """
        ),
        {"rows": rows},
    )
    s.execute(text("ANALYZE transactions"))
    s.execute(text("ANALYZE bank_accounts"))
