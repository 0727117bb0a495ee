"""However often a fan-out is queued, an account is synced once for it; judged by what the bank was asked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis
from dramatiq import Message
from sqlalchemy import func, insert, select

from books.calendar import today
from books.models import AccountStatus, BankAccount, BankConnection
from fleet import wire
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.storage import session
from tests.books.hosts import hosts
from tests.waiting import wait_until

LANE = "transaction_sync"


@pytest.fixture
def accounts(environment: object, request: pytest.FixtureRequest) -> Iterator[int]:
    """So many that were synced yesterday, so that a sync asks for one page."""
    count: int = request.param
    with session() as s:
        connection = BankConnection(requisition_id=str(uuid4()), institution="BANK", customer="c")
        s.add(connection)
        s.flush()
        row = {"connection_id": connection.id, "name": "n", "currency": "EUR", "customer": "c"}
        row |= {"status": AccountStatus.IDLE, "synced_through": today() - timedelta(days=1)}
        s.execute(insert(BankAccount), [{**row, "external_id": f"account-{number}"} for number in range(count)])
    yield count
    with session() as s:
        s.execute(BankAccount.__table__.delete())  # type: ignore[attr-defined]


def asked(world: Any) -> Counter[str]:
    """How often the bank was asked for the rows of each account."""
    return Counter(path.split("/accounts/")[1].split("/")[0] for path, _, _ in world.asked)


@pytest.mark.parametrize(
    ("accounts", "of_a_slot"),
    [
        pytest.param(150, False, id="sent by hand"),
        pytest.param(150, True, id="of one slot"),
        pytest.param(5_000, False, id="five thousand", marks=pytest.mark.soak),
    ],
    indirect=["accounts"],
)
def test_a_fan_out_that_is_queued_three_times_at_once_makes_one_sync_an_account(
    accounts: int,
    of_a_slot: bool,
    world: Any,
    environment: Any,
    redis_client: redis.Redis,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world.reply = lambda *_: (200, {"transactions": {"booked": [], "pending": []}})
    sender = FleetBroker(url=environment.redis_url, namespace=environment.namespace)
    # A slot itself would be claimed by one message; what hangs on it here is as old as that slot.
    slot = {wire.ASKED_AT: wire.to_ms(clock.now())} if of_a_slot else {}
    for _ in range(3):
        sender.enqueue(Message(LANE, "update_all_transactions", (), {}, dict(slot)))
    began = time.monotonic()
    with hosts(tmp_path, LANE) as (host,):
        waiting = [keys.bodies(environment.namespace, name) for name in (LANE, keys.delayed(LANE))]
        wait_until(lambda: not redis_client.exists(*waiting), 300)
    took = time.monotonic() - began
    counts, refused = asked(world), len(host.logged("row_not_claimed"))
    with capsys.disabled():
        print(
            f"\n{accounts} accounts, three fan-outs: {sum(counts.values())} syncs, {refused} refused, in {took:.0f} s"
        )
    assert len(counts) == accounts
    assert set(counts.values()) == {1}
    assert refused > 0, "no two messages met over an account"
    with session() as s:
        per_row = s.execute(select(func.min(BankAccount.attempts), func.max(BankAccount.attempts))).one()
    assert tuple(per_row) == (1, 1)
    assert redis_client.zcard(keys.dead(environment.namespace, LANE)) == 0
