"""What a person does on the pages, what it changes, and the row it leaves in the audit."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from fleet import allowance, by_hand, ledger
from fleet.app import App
from fleet.audit import Row, read
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.console.letters import address
from fleet.storage import database
from fleet.window import window
from tests.broker.letters import fill
from tests.console import staged
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


def test_one_letter_is_queued_again(client: Client, broker: FleetBroker) -> None:
    staged.dead_letters(broker, "agent_batch", 3, "run_evals", "failed", "ValueError: no")
    acting, id = client(), "run_evals-00001"
    page = f"/dead/agent_batch/{address(id)}"
    given = {"do": "requeue", "queue": "agent_batch", "id": address(id), "because": WHY}
    acting.post("/dead/act", data={**given, "form_token": form_token(acting, page)})
    ns = broker.namespace
    assert broker.client.lrange(keys.queue(ns, "agent_batch"), 0, -1) == [id.encode()]
    assert broker.client.zcard(keys.dead(ns, "agent_batch")) == 2
    row = last(broker)
    assert row.subject == f"agent_batch {id}" and row.after == "1 of 1 queued again."
    assert acting.get(page).status_code == 404


def test_letters_that_match_are_counted_and_shown_before_they_are_dropped(client: Client, broker: FleetBroker) -> None:
    staged.dead_letters(broker, "agent_batch", 30, "run_evals", "deadline", "DeadlineExceeded: over")
    staged.dead_letters(broker, "agent_batch", 4, "prepare_run", "failed", "ValueError: no")
    acting = client()
    page = "/dead/act?do=discard&queue=agent_batch&actor=run_evals"
    shown = acting.get(page).text
    assert "30 letters would be dropped for good" in shown and "The first 20 of them" in shown
    assert "prepare_run-" not in shown
    given = hidden(shown)
    assert given["do"] == "discard" and given["actor"] == "run_evals"
    said = acting.post("/dead/act", data={**given, "because": WHY}, follow_redirects=True).text
    assert "30 of 30 dropped for good." in said
    assert broker.client.zcard(keys.dead(broker.namespace, "agent_batch")) == 4
    assert last(broker).subject == "queue=agent_batch, actor=run_evals"
    assert str(last(broker).before).startswith("30 dead letters")


def test_a_letter_that_died_after_the_page_was_shown_is_not_touched(client: Client, broker: FleetBroker) -> None:
    staged.dead_letters(broker, "agent_batch", 2, "run_evals", "failed", "ValueError: no")
    acting = client()
    given = hidden(acting.get("/dead/act?do=discard&queue=agent_batch").text)
    fill(broker, 1, queue="agent_batch", died=datetime.now(UTC).timestamp() + 0.5)
    acting.post("/dead/act", data={**given, "because": WHY})
    assert broker.client.zrange(keys.dead(broker.namespace, "agent_batch"), 0, -1) == [b"agent_batch-000000"]


def test_a_thousand_letters_at_most_are_touched_and_the_page_says_so(client: Client, broker: FleetBroker) -> None:
    fill(broker, 1_200, queue="charging", died=1_000)
    acting = client()
    shown = acting.get("/dead/act?do=discard&queue=charging").text
    assert "1,000 letters would be" in shown and "At most 1,000 at a time" in shown
    acting.post("/dead/act", data={**hidden(shown), "because": WHY})
    assert broker.client.zcard(keys.dead(broker.namespace, "charging")) == 200


def test_a_letter_whose_id_is_no_text_and_whose_body_cannot_be_read_is_shown_and_dropped(
    client: Client, broker: FleetBroker
) -> None:
    ns, id = broker.namespace, b"\xff/../\x00?"
    broker.client.zadd(keys.dead(ns, "charging"), {id: 1_000})
    broker.client.hset(keys.dead_bodies(ns, "charging"), id, b"\xff{")  # type: ignore[arg-type]
    acting = client()
    (page,) = re.findall(r'href="(/dead/charging/[^"]+)"', acting.get("/dead?queue=charging").text)
    assert "cannot be read" in acting.get(page).text
    given = {"do": "discard", "queue": "charging", "id": page.rpartition("/")[2], "because": WHY}
    acting.post("/dead/act", data={**given, "form_token": form_token(acting, page)})
    assert broker.client.zcard(keys.dead(ns, "charging")) == 0


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


def hidden(page: str) -> dict[str, str]:
    """The hidden fields of the form that acts."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page))


def test_the_arguments_of_a_letter_are_shown_as_far_as_its_actor_lists_them_as_safe(
    client: Client, broker: FleetBroker
) -> None:
    told = "ValueError: no account of Lovelace, DE02120300000000202051"
    for actor, args, shown, hidden in (
        ("submit_approved_run", [4_177], ["run_id=4177"], []),
        ("nowhere_declared", [4_177, "Lovelace"], ["1=(int)", "2=(str, 8 long)"], ["4177", "Lovelace"]),
    ):
        staged.dead_letters(broker, "agent_realtime", 1, actor, "failed", told)
        bodies, id = keys.dead_bodies(broker.namespace, "agent_realtime"), f"{actor}-00000"
        body = json.loads(broker.client.hget(bodies, id) or b"{}") | {"args": args}
        broker.client.hset(bodies, id, json.dumps(body))
        page = client().get(f"/dead/agent_realtime/{address(id)}").text
        assert all(part in page for part in shown), page
        assert not any(part in page for part in [*hidden, "DE02120300000000202051"])


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
