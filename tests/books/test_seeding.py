"""A night's rows are what the report will expect."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from sqlalchemy import func, select

from books.models import Attachment, BankAccount, ImportJob, Invoice, Subscription
from books.sandbox.bank import seed_connections
from books.seed_files import write_broken_csv, write_good_csv
from books.seeding import seed_night
from fleet.storage import session

TODAY = date(2026, 3, 2)


def test_a_seeded_night_holds_a_row_for_everything_expected(migrated: object, tmp_path: Path) -> None:
    with session() as s:
        expected = seed_night(
            s,
            connections=seed_connections(7, 300),
            receipts=[tmp_path / f"{number}.png" for number in range(40)],
            broken_receipts=[tmp_path / "a.pdf", tmp_path / "b.png"],
            good_csv=write_good_csv(tmp_path / "good.csv", 7, TODAY),
            broken_csv=write_broken_csv(tmp_path / "broken.csv", 7, TODAY),
            seed=7,
            today=TODAY,
            uploads=[tmp_path / "0.png", tmp_path / "1.png"],
        )
    with session() as s:
        connected = select(func.count()).select_from(BankAccount).where(BankAccount.connection_id.is_not(None))
        assert s.scalar(connected) == len(expected.accounts) == 300
        assert s.scalar(select(func.count()).select_from(Attachment)) == 44
        assert set(s.scalars(select(ImportJob.id))) == set(expected.imports)
        assert s.scalar(select(func.count()).select_from(Invoice)) == 13
        assert s.scalar(select(func.count()).select_from(Subscription)) == 47
    actors = [actor for actor, _ in expected.messages]
    assert {actor: actors.count(actor) for actor in actors} == {
        "extract_batch": 1,
        "extract_data_from_attachment": 2,
        "import_csv": 2,
        "prepare_run": 15,
        "submit_approved_run": 6,
    }
