"""What a soak calls lost, doubled or stuck is seen when it happens."""

from __future__ import annotations

import json
import runpy
import sys
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import dramatiq
import pytest
from sqlalchemy import func

from books.models import AccountStatus, BankAccount
from books.night import judge_slots
from books.night.plan import LENGTH, at
from books.night.report import Line
from books.night.world import World
from config import lanes
from fleet import app as application
from fleet.broker import FleetBroker, keys
from fleet.ledger import LedgerLine
from fleet.storage import session
from fleet.workers.worker import FleetWorker
from tests.conftest import ROOT, Environment
from tests.soak import invariants
from tests.waiting import wait_until

SLOT = at(3, 10).astimezone(UTC)
NOWHERE = Path("/nowhere")


def red(lines: Any) -> dict[str, str]:
    found: list[Line] = list(lines)
    return {line.claim: line.which for line in found if line.verdict == "red"}


def test_a_message_that_neither_ran_nor_is_a_dead_letter_is_lost(
    redis_url: str, namespace: str, tmp_path: Path
) -> None:
    broker, journal = FleetBroker(url=redis_url, namespace=namespace, middleware=[]), tmp_path / "tally"

    @dramatiq.actor(broker=broker, queue_name="soak")
    def tally(number: int) -> None:
        if number == 2:
            raise ValueError("this one dies")
        with journal.open("a") as handle:
            handle.write(f"{number}\n")

    sent: dict[str, int] = {}
    for number in (1, 2, 3):
        message = tally.send(number)
        sent[invariants.in_redis(message)] = number
        if number < 3:
            _work_off(broker)
    claim = "messages sent that ran or stand in the dead letters"
    assert red(invariants.tallied(broker, journal, sent)) == {claim: f"message {invariants.in_redis(message)}"}
    _work_off(broker)
    assert red(invariants.tallied(broker, journal, sent)) == {}
    broker.client.close()


def test_dead_letters_of_counted_messages_outlast_the_longest_soak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "config.lanes_of_books", lanes)
    soak = runpy.run_path(str(ROOT / "tests/soak/rooms/lanes.py"))["LANES"][-1]
    pace = LENGTH / timedelta(seconds=120)
    assert soak.name == "soak" and soak.dead_kept_for / pace > timedelta(days=2)


def _work_off(broker: FleetBroker) -> None:
    worker = FleetWorker(broker, worker_threads=1, worker_timeout=50)
    worker.start()
    wait_until(lambda: not broker.client.exists(keys.bodies(broker.namespace, "soak")))
    worker.stop(timeout=2_000)


def test_what_left_the_house_twice_is_seen_in_the_sandboxs_own_records(tmp_path: Path) -> None:
    gateway, mail = tmp_path / "gateway.jsonl", tmp_path / "mail.jsonl"
    world = World("", "", "", "", NOWHERE, NOWHERE, gateway, mail)
    charge = json.dumps({"reference": "subscription 3", "taken": True}) + "\n"
    asked = json.dumps({"reference": "subscription 3", "taken": False}) + "\n"
    told = json.dumps({"idempotency_key": "invoice-7"}) + "\n"
    gateway.write_text(charge + asked + asked)
    mail.write_text(told)
    assert red(invariants.left_the_house(world)) == {}
    gateway.write_text(charge + asked + charge)
    mail.write_text(told + told)
    assert red(invariants.left_the_house(world)) == {
        "filings and charges, by the gateway's log": "subscription 3 2×",
        "mails, by the mail server's journal": "invoice-7 2×",
    }


def test_a_slot_whose_end_died_with_its_process_is_told_by_the_log_and_others_are_lost(
    migrated: Environment, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    said = {"event": "message_expired", "origin": f"tick@{SLOT.isoformat()}"}
    by_hand = {"event": "message_expired", "origin": None}
    (tmp_path / "logs" / "lane-soak.log").write_text("".join(json.dumps(line) + "\n" for line in (said, by_hand)))
    fired = [LedgerLine(entry, "fired", SLOT, SLOT, 1, SLOT, "token") for entry in ("tick", "other")]
    told = judge_slots._messages(fired, invariants.expired(tmp_path))
    assert red(told) == {"fired slots that a worker took up": "other@03:10"}


@pytest.mark.parametrize(("behind", "seen"), [(timedelta(seconds=90), True), (timedelta(seconds=30), False)])
def test_a_row_that_says_running_longer_behind_its_lease_than_a_janitor_takes_is_seen(
    migrated: Environment, behind: timedelta, seen: bool
) -> None:
    with session() as s:
        row = BankAccount(
            external_id=str(behind), name="n", currency="EUR", customer="c", status=AccountStatus.RUNNING,
            lease_until=func.now() - behind,
        )  # fmt: skip
        s.add(row)
        s.flush()
        name = f"BankAccount {row.id}"
    assert (name in invariants.beyond(timedelta(minutes=1))) == seen


def test_a_row_that_is_left_to_its_lease_is_ended_by_a_janitors_pass_behind_it(migrated: Environment) -> None:
    with session() as s:
        row = BankAccount(
            external_id="left", name="n", currency="EUR", customer="c", status=AccountStatus.RUNNING,
            lease_until=func.now() + timedelta(hours=1),
        )  # fmt: skip
        s.add(row)
        s.flush()
        left = row.id
    assert invariants.lapse_leases() >= 1
    assert invariants.lapse_leases() == 0
    janitors = application.janitors(application.load(ROOT))
    janitors["recover_stuck_syncs"].recover_stuck_syncs.fn()
    with session() as s:
        assert s.get_one(BankAccount, left).status != AccountStatus.RUNNING
