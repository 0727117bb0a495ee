"""What a person does on the pages, what it changes, and the row it leaves in the audit."""

from __future__ import annotations

from datetime import timedelta
from types import ModuleType
from typing import NoReturn

import pytest
import redis
from sqlalchemy import text

from fleet import allowance, balance_by_hand, by_hand, ledger
from fleet.app import App
from fleet.audit import Row, read
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.storage import database
from fleet.window import window
from tests.broker.proxy import Proxy
from tests.console.conftest import Client, form_token

ENTRY = "/schedule/nightly_audit"
WHY = "the bank is closed today"


def last(broker: FleetBroker) -> Row:
    return read(broker, 1)[0]


def test_an_entry_is_paused_and_resumed_and_both_stand_in_ledger_and_audit(client: Client, broker: FleetBroker) -> None:
    acting = client()
    given = {"because": WHY, "form_token": form_token(acting, ENTRY)}
    said = acting.post(f"{ENTRY}/pause", data=given, follow_redirects=True)
    assert "nightly_audit is paused." in said.text
    assert by_hand.paused(broker.client, broker.namespace)["nightly_audit"].because == WHY
    row = last(broker)
    assert (row.what, row.subject, row.because, row.before, row.after) == (
        *("pause", "nightly_audit", WHY),
        *("not paused", "paused"),
    )
    assert " on " in row.who
    acting.post(f"{ENTRY}/resume", data=given)
    assert by_hand.paused(broker.client, broker.namespace) == {}
    assert last(broker).before is not None and WHY in str(last(broker).before)
    assert [line.verdict for line in ledger.read(broker.client, broker.namespace, "nightly_audit")] == [
        "pause",
        "resume",
    ]


def test_an_entry_is_fired_now(client: Client, broker: FleetBroker) -> None:
    acting = client()
    answer = acting.post(f"{ENTRY}/fire", data={"because": WHY, "form_token": form_token(acting, ENTRY)})
    assert answer.status_code == 303
    (id,) = broker.client.lrange(keys.queue(broker.namespace, "housekeeping"), 0, -1)
    assert last(broker).after == id.decode() and last(broker).what == "fire"


@pytest.mark.parametrize("because", ["", "   ", "5 minutes", "ok"])
def test_an_act_without_a_reason_in_words_is_not_done(client: Client, broker: FleetBroker, because: str) -> None:
    acting = client()
    answer = acting.post(f"{ENTRY}/pause", data={"because": because, "form_token": form_token(acting, ENTRY)})
    assert answer.status_code == 400 and "says nothing" in answer.text
    assert by_hand.paused(broker.client, broker.namespace) == {} and read(broker, 1) == []


def test_an_act_on_what_nobody_declared_says_what_was_meant(client: Client) -> None:
    acting = client()
    answer = acting.post("/schedule/nightly_audi/fire", data={"because": WHY, "form_token": form_token(acting, ENTRY)})
    assert answer.status_code == 404 and "nightly_audit" in answer.text


def test_a_fire_whose_reply_is_lost_stands_in_the_audit_and_was_done(
    client: Client, broker: FleetBroker, lossy: Proxy
) -> None:
    acting = client()
    given = {"because": WHY, "form_token": form_token(acting, ENTRY)}
    lossy.lose_reply()
    assert acting.post(f"{ENTRY}/fire", data=given).status_code == 503
    assert lossy.lost and broker.client.llen(keys.queue(broker.namespace, "housekeeping")) == 1
    row = last(broker)
    assert (row.what, row.after) == ("fire", "was tried, and nobody knows whether it was done: ConnectionError")


@pytest.mark.parametrize(
    ("module", "does", "path", "what"),
    [
        (by_hand, "pause", f"{ENTRY}/pause", "pause"),
        (by_hand, "resume", f"{ENTRY}/resume", "resume"),
        (balance_by_hand, "hold", "/balancer/categorize_uncategorized_transactions/hold", "hold"),
        (balance_by_hand, "release", "/balancer/categorize_uncategorized_transactions/release", "release"),
        (balance_by_hand, "switch", "/balancer/off", "balancer off"),
        (balance_by_hand, "switch", "/balancer/on", "balancer on"),
    ],
)
def test_an_act_that_redis_did_not_answer_stands_in_the_audit_as_tried(
    client: Client,
    broker: FleetBroker,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    does: str,
    path: str,
    what: str,
) -> None:
    def unanswered(*_: object, **__: object) -> NoReturn:
        raise redis.TimeoutError("Timeout reading from socket")

    acting = client()
    given = {"because": WHY, "form_token": form_token(acting, ENTRY), "hours": "0.1"}
    monkeypatch.setattr(module, does, unanswered)
    assert acting.post(path, data=given).status_code == 503
    row = last(broker)
    assert (row.what, row.because, row.before) == (what, WHY, None)
    assert row.after == "was tried, and nobody knows whether it was done: TimeoutError"


def test_an_act_that_was_refused_leaves_no_row(client: Client, broker: FleetBroker) -> None:
    acting = client()
    given = {"because": WHY, "form_token": form_token(acting, ENTRY), "hours": "400"}
    for path in (f"{ENTRY}/resume", "/balancer/categorize_uncategorized_transactions/hold"):
        assert acting.post(path, data=given).status_code == 400
    assert read(broker, 1) == []


def test_where_the_database_does_not_take_the_row_redis_does_and_both_are_shown(
    client: Client, broker: FleetBroker
) -> None:
    acting = client()
    given = {"because": WHY, "form_token": form_token(acting, ENTRY)}
    acting.post(f"{ENTRY}/pause", data=given)
    with database().begin() as connection:
        connection.execute(text("ALTER TABLE fleet_audit RENAME TO away"))
    try:
        acting.post(f"{ENTRY}/resume", data=given)
        assert [row.what for row in read(broker, 5)] == ["resume"]
    finally:
        with database().begin() as connection:
            connection.execute(text("ALTER TABLE away RENAME TO fleet_audit"))
    assert [row.what for row in read(broker, 5)] == ["resume", "pause"]
    shown = acting.get("/audit").text
    assert shown.index("resume") < shown.index("not paused")


def test_an_elastic_entry_is_held_and_released(client: Client, broker: FleetBroker, app: App) -> None:
    acting = client()
    entry = app.entry("categorize_uncategorized_transactions")
    left = window(entry, now := clock.now()).holdable_until(now) - now
    given = {"because": WHY, "form_token": form_token(acting, "/balancer"), "hours": str(left / timedelta(hours=2))}
    said = acting.post(f"/balancer/{entry.name}/hold", data=given, follow_redirects=True).text
    assert f"{entry.name} is held until" in said
    assert allowance.allowance(broker, entry, clock.now()).reason == "held"
    assert last(broker).what == "hold" and last(broker).before == "not held"
    acting.post(f"/balancer/{entry.name}/release", data=given)
    assert allowance.holds(broker, [entry.name]) == {}
    assert last(broker).what == "release" and WHY in str(last(broker).before)
    late = acting.post(f"/balancer/{entry.name}/hold", data={**given, "hours": "40"})
    assert late.status_code == 400 and "at the latest" in late.text
    assert acting.post("/balancer/nightly_audit/hold", data=given).status_code == 404
    never = acting.post(f"/balancer/{entry.name}/hold", data={**given, "hours": "100000000"})
    assert never.status_code == 400 and "give a number of hours" in never.text


def test_the_balancer_is_switched_off_and_on(client: Client, broker: FleetBroker, app: App) -> None:
    acting = client()
    given = {"because": WHY, "form_token": form_token(acting, "/balancer")}
    said = acting.post("/balancer/off", data=given, follow_redirects=True).text
    assert "The balancer is off, by" in said
    off = allowance.switched_off(broker)
    assert off is not None and off.because == WHY
    acting.post("/balancer/on", data=given)
    assert allowance.switched_off(broker) is None
    assert [row.what for row in read(broker, 2)] == ["balancer on", "balancer off"]
