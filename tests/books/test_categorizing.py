"""Transactions are sorted by keyword first, by the model where no keyword is found, and never twice."""

from __future__ import annotations

import json
from datetime import date
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select

from books import categorizing
from books.models import AccountStatus, BankAccount, Category, Transaction
from fleet.storage import session


@pytest.fixture
def account(migrated: object) -> int:
    with session() as s:
        s.execute(Transaction.__table__.delete())  # type: ignore[attr-defined]
        row = BankAccount(external_id=str(uuid4()), name="n", currency="EUR", customer="c", status=AccountStatus.IDLE)
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


def sorted_into(row: int) -> tuple[str | None, str | None]:
    with session() as s:
        found = s.get_one(Transaction, row)
        name = s.scalar(select(Category.name).where(Category.id == found.category_id))
        return name, found.categorized_by


def says(category: str) -> Any:
    message = {"role": "assistant", "content": json.dumps({"category": category})}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return lambda *_: (200, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


def test_a_keyword_decides_without_asking_the_model(account: int, world: Any) -> None:
    row, kept = add(account, "TANKSTELLE Nr. 7"), add(account, "Tankstelle", category="Travel")
    assert categorizing.categorize_uncategorized() == []
    assert sorted_into(row) == ("Fuel and vehicles", "rule")
    assert sorted_into(kept)[0] == "Travel"
    assert world.asked == []


def test_the_model_is_asked_where_no_keyword_is_found(account: int, world: Any) -> None:
    row = add(account, "Kontoführung März")
    world.reply = says("Bank fees")
    categorizing.categorize_uncategorized()
    assert sorted_into(row) == ("Bank fees", "model")
    categorizing.categorize(row)
    assert world.count("chat/completions") == 1


def test_a_pass_asks_a_bounded_number_of_times_and_returns_the_rest(
    account: int, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [add(account, f"Kontoführung {number}") for number in range(7)]
    monkeypatch.setattr(categorizing, "MODEL_CALLS", 2)
    monkeypatch.setattr(categorizing, "SENT_ON", 4)
    monkeypatch.setattr(categorizing, "ROWS_A_PAGE", 3)
    world.reply = says("Bank fees")
    assert categorizing.categorize_uncategorized() == rows[2:6]
    assert world.count("chat/completions") == 2


def test_a_row_that_the_model_cannot_sort_does_not_end_the_pass(account: int, world: Any) -> None:
    bad, good = add(account, "Zzz"), add(account, "Kontoführung")
    nonsense, right = says("Sorcery"), says("Bank fees")
    world.reply = lambda path, query, body: (nonsense if "Zzz" in json.dumps(body) else right)()
    categorizing.categorize_uncategorized()
    assert sorted_into(bad) == (None, None)
    assert sorted_into(good) == ("Bank fees", "model")
