"""The sandbox bank as a process of its own, and the client that gets on with it; twenty minutes of night a second."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from books.bank import BankAnswerInvalid, BankClient, BankTransaction, BankUnavailable, ConsentExpired, RateLimited
from books.sandbox.bank import seed_connections
from books.sandbox.bank.ledger import BERLIN, Ledger
from books.sandbox.bank.tokens import ACCESS_LIFETIME
from books.sandbox.bank.weather import CALLS_A_DAY, SLOW_FACTOR, Weather
from fleet.clock import Night, clock, environment

ROOT = Path(__file__).parents[2]
SEED, ACCOUNTS, ORIGIN = 5, 60, date(2026, 3, 2)
SINCE = ORIGIN - timedelta(days=180)


@dataclass
class Sandbox:
    """A running server, its journal, and a client."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    client: BankClient

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def truth(self) -> dict[str, Any]:
        truth: dict[str, Any] = httpx.get(f"{self.url}/sandbox/truth").json()
        return truth


def start(folder: Path, night: Night) -> Sandbox:
    ready, log = folder / "ready", folder / "bank.jsonl"
    command = [sys.executable, "-m", "books.sandbox.bank", "--ready-file", str(ready), "--log", str(log)]
    command += ["--seed", str(SEED), "--accounts", str(ACCOUNTS), "--origin", str(ORIGIN)]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment(night)})
    give_up = time.monotonic() + 15
    while not ready.exists():
        assert process.poll() is None and time.monotonic() < give_up, "the sandbox bank did not start"
        time.sleep(0.02)
    url = ready.read_text().strip()
    return Sandbox(process, url, log, BankClient(url, "id", "key"))


@pytest.fixture(scope="module")
def night() -> Iterator[Night]:
    night = Night(origin=datetime(2026, 3, 2, 0, 30, tzinfo=BERLIN), anchor=datetime.now(UTC), rate=1200.0)
    clock.set_night(night)
    yield night
    clock.set_night(None)


@pytest.fixture
def sandbox(tmp_path: Path, night: Night) -> Iterator[Sandbox]:
    sandbox = start(tmp_path, night)
    yield sandbox
    sandbox.client.close()
    sandbox.process.terminate()
    sandbox.process.wait(5)


@dataclass
class Synced:
    """What one account brought, and what stood in the way."""

    rows: dict[str, BankTransaction] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def sync(client: BankClient, account: str) -> Synced:
    """As a job would: again after what passes, waiting for limits, not after an expired consent."""
    synced = Synced()
    for _ in range(8):
        try:
            client.balances(account)
            for page in client.transactions(account, SINCE, ORIGIN):
                synced.rows |= {row.external_id: row for row in page.transactions}
            return synced
        except RateLimited as limited:
            synced.errors.append("limited")
            clock.sleep(limited.after)
        except (BankUnavailable, BankAnswerInvalid) as error:
            synced.errors.append(type(error).__name__)
        except ConsentExpired as error:
            assert "(EUA)" in str(error)
            synced.errors.append("expired")
            return synced
    raise AssertionError(f"account {account} never came through: {synced.errors}")


def test_every_account_is_synced_to_exactly_what_the_bank_says_it_served(sandbox: Sandbox) -> None:
    requisitions = list(sandbox.client.requisitions(page_size=3))
    accounts = [account for requisition in requisitions for account in requisition.accounts]
    assert accounts == [a.id for connection in seed_connections(SEED, ACCOUNTS) for a in connection.accounts]
    with ThreadPoolExecutor(16) as pool:
        synced = dict(zip(accounts, pool.map(lambda account: sync(sandbox.client, account), accounts), strict=True))

    truth = {account["id"]: account for account in sandbox.truth()["accounts"]}
    assert {a for a in accounts if "expired" in synced[a].errors} == {a for a in accounts if not truth[a]["connected"]}
    for account in accounts:
        served = truth[account]["served"]
        assert {*served["booked"], *served["pending"]} == synced[account].rows.keys(), account
    assert sum(len(found.rows) for found in synced.values()) > 20 * ACCOUNTS

    faults = Counter(error for found in synced.values() for error in found.errors)
    assert faults["BankAnswerInvalid"] == 1 and faults["limited"] == 5 and faults["expired"] == 3
    lines = sandbox.lines()
    failed = Counter((line["path"], line["query"]) for line in lines if line["fault"] == "failure")
    assert failed and max(failed.values()) == 1
    assert all(line["status"] == 200 for line in lines if line["rows"])
    assert {line["account"] for line in lines} == {None, *accounts}


def test_access_tokens_expire_and_are_refreshed(sandbox: Sandbox) -> None:
    account = next(iter(seed_connections(SEED, ACCOUNTS)[1].accounts)).id
    sandbox.client.account(account)
    clock.sleep(ACCESS_LIFETIME + timedelta(minutes=1))
    sandbox.client.account(account)
    tokens = Counter(line["path"] for line in sandbox.lines() if "/token/" in line["path"])
    assert tokens["/api/v2/token/new/"] == 1 and tokens["/api/v2/token/refresh/"] >= 1


def test_an_account_that_asks_too_often_is_told_in_the_apis_own_headers_when_it_may_again(sandbox: Sandbox) -> None:
    account = seed_connections(SEED, ACCOUNTS)[2].accounts[0].id
    served = 0
    with pytest.raises(RateLimited) as caught:
        for _ in range(CALLS_A_DAY + 2):
            try:
                sandbox.client.balances(account)
                served += 1
            except BankUnavailable:
                continue
    assert served == CALLS_A_DAY
    assert timedelta(hours=12) < caught.value.after <= timedelta(hours=24)
    (line,) = [line for line in sandbox.lines() if line["status"] == 429]
    assert line["fault"] == "limit" and line["account"] == account


def test_days_to_come_cannot_be_asked_for_and_strangers_are_turned_away(sandbox: Sandbox) -> None:
    account = seed_connections(SEED, ACCOUNTS)[2].accounts[0].id
    path = f"{sandbox.url}/api/v2/accounts/{account}/transactions/"
    token = httpx.post(f"{sandbox.url}/api/v2/token/new/", json={"secret_id": "a", "secret_key": "b"}).json()["access"]
    answer = httpx.get(path, params={"date_to": "2027-01-01"}, headers={"authorization": f"Bearer {token}"})
    assert (answer.status_code, answer.json()["summary"]) == (400, "Invalid date_to")
    assert httpx.get(path).json() == {
        "summary": "Invalid token",
        "detail": "Token is invalid or expired",
        "status_code": 401,
    }
    no_key = httpx.post(f"{sandbox.url}/api/v2/token/new/", json={"secret_id": "a", "secret_key": ""})
    assert no_key.status_code == 401


def test_sigterm_ends_the_server_at_once_though_connections_are_open(sandbox: Sandbox) -> None:
    next(sandbox.client.requisitions(), None)
    started = time.monotonic()
    sandbox.process.send_signal(signal.SIGTERM)
    assert sandbox.process.wait(5) == 0
    assert time.monotonic() - started < 1


def test_a_ledger_is_the_same_whatever_was_asked_before() -> None:
    connection = seed_connections(SEED, ACCOUNTS)[1]
    at = datetime(2026, 3, 2, 1, 0, tzinfo=BERLIN)
    first, second = (
        [Ledger(SEED, account, connection.institution, ORIGIN) for account in accounts]
        for accounts in (connection.accounts, connection.accounts[::-1])
    )
    first[0].shown(at + timedelta(days=2), date.min, date.max)
    bodies = [ledger.shown(at, SINCE, ORIGIN).body(at) for ledger in first]
    assert bodies == [ledger.shown(at, SINCE, ORIGIN).body(at) for ledger in second[::-1]]
    other = Ledger(SEED + 1, connection.accounts[0], connection.institution, ORIGIN)
    assert other.shown(at, SINCE, ORIGIN).body(at) != bodies[0]


def test_pending_rows_are_booked_at_three_under_the_same_id() -> None:
    before, after = (datetime(2026, 3, 2, hour, 59, tzinfo=BERLIN) for hour in (2, 3))
    pending, moved = set(), set()
    for connection in seed_connections(SEED, ACCOUNTS):
        for account in connection.accounts:
            ledger = Ledger(SEED, account, connection.institution, ORIGIN)
            was, became = (ledger.shown(at, date.min, date.max) for at in (before, after))
            was_pending, now_booked = {e.id for e in was.pending}, {e.id for e in became.booked}
            assert was_pending <= now_booked | {e.id for e in became.pending}
            assert {e.id for e in was.booked} <= now_booked
            assert not was_pending & {e.id for e in was.booked}
            pending |= was_pending
            moved |= was_pending & now_booked
    assert len(pending) > 10 and len(moved) > len(pending) / 2


def test_windows_of_a_span_hold_each_row_once() -> None:
    connection = seed_connections(SEED, ACCOUNTS)[3]
    ledger = Ledger(SEED, connection.accounts[0], connection.institution, ORIGIN)
    at, middle = datetime(2026, 3, 2, 8, 0, tzinfo=BERLIN), ORIGIN - timedelta(days=90)
    whole = ledger.shown(at, SINCE, ORIGIN)
    parts = [ledger.shown(at, SINCE, middle), ledger.shown(at, middle + timedelta(days=1), ORIGIN)]
    assert sorted(e.id for e in whole.booked) == sorted(e.id for part in parts for e in part.booked)


def test_connections_hold_every_account_once_with_ibans_that_check() -> None:
    for accounts in (6, 60, 300):
        connections = seed_connections(SEED, accounts)
        assert connections == seed_connections(SEED, accounts)
        found = [account for connection in connections for account in connection.accounts]
        assert len(found) == accounts == len({account.id for account in found}) == len({a.iban for a in found})
        assert all(connection.accounts for connection in connections)
        for account in found:
            turned = account.iban[4:] + account.iban[:4]
            assert int("".join(str(int(sign, 36)) for sign in turned)) % 97 == 1 and len(account.iban) == 22
    assert len(connections) == 40


def test_a_slow_episode_takes_three_times_as_long() -> None:
    connections = seed_connections(SEED, ACCOUNTS)
    midnight = datetime(2026, 3, 2, tzinfo=BERLIN)
    start, end = Weather(SEED, connections).slow_episodes(midnight)[0]
    assert midnight + timedelta(hours=1) <= start < end <= midnight + timedelta(hours=1, minutes=20)
    slow, usual = (Weather(SEED, connections).latency("balances", "a", at) for at in (start, midnight))
    assert slow == usual * SLOW_FACTOR


def test_the_median_latency_lies_between_two_and_four_seconds() -> None:
    weather, calm = Weather(SEED, seed_connections(SEED, ACCOUNTS)), datetime(2026, 3, 2, tzinfo=BERLIN)
    drawn = sorted(weather.latency("balances", f"account {n}", calm) for n in range(400))
    assert timedelta(seconds=2) < drawn[200] < timedelta(seconds=4) < drawn[-1]


def test_seeding_connections_loads_no_server() -> None:
    program = "import sys, books.sandbox.bank; sys.exit('starlette' in sys.modules or 'uvicorn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=30, check=False).returncode == 0
