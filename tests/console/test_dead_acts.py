"""Dead letters on the pages: found, shown, queued again and dropped; which of them, and what the audit has of it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from html import unescape

import pytest

from fleet.audit import Row, read
from fleet.broker import FleetBroker, keys
from fleet.console.letters import address
from tests.broker.letters import fill
from tests.broker.proxy import Proxy
from tests.console import staged
from tests.console.conftest import Client

WHY = "the bank is closed today"


def last(broker: FleetBroker) -> Row:
    return read(broker, 1)[0]


def hidden(page: str) -> dict[str, str]:
    """The hidden fields of the form that acts."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page))


def leads(page: str, says: str) -> str:
    """Where the link that says this leads."""
    (found,) = re.findall(rf'<a href="([^"]+)">{re.escape(says)}</a>', page)
    return unescape(found)


def test_one_letter_is_queued_again(client: Client, broker: FleetBroker) -> None:
    staged.dead_letters(broker, "agent_batch", 3, "run_evals", "failed", "ValueError: no")
    acting, id = client(), "run_evals-00001"
    page = f"/dead/agent_batch/{address(id)}"
    acting.post("/dead/act", data={**hidden(acting.get(page).text), "do": "requeue", "because": WHY})
    ns = broker.namespace
    assert broker.client.lrange(keys.queue(ns, "agent_batch"), 0, -1) == [id.encode()]
    assert broker.client.zcard(keys.dead(ns, "agent_batch")) == 2
    row = last(broker)
    assert row.subject == f"agent_batch {id}" and row.after == "1 of 1 queued again"
    assert acting.get(page).status_code == 404


@pytest.mark.parametrize("do", ["requeue", "discard"])
def test_one_letter_that_died_anew_after_it_was_shown_is_not_touched_and_that_is_said(
    client: Client, broker: FleetBroker, do: str
) -> None:
    staged.dead_letters(broker, "agent_batch", 2, "run_evals", "failed", "ValueError: no")
    acting, id = client(), "run_evals-00001"
    given = {**hidden(acting.get(f"/dead/agent_batch/{address(id)}").text), "do": do, "because": WHY}
    broker.client.zincrby(keys.dead(broker.namespace, "agent_batch"), 60_000, id)
    answer = acting.post("/dead/act", data=given)
    assert answer.status_code == 400 and f"{id} died anew, at " in answer.text
    del given["died"]
    assert acting.post("/dead/act", data=given).status_code == 400
    assert broker.client.zcard(keys.dead(broker.namespace, "agent_batch")) == 2 and read(broker, 1) == []


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


def test_what_a_search_has_found_the_act_that_it_leads_to_finds_too(client: Client, broker: FleetBroker) -> None:
    fill(broker, 2_500, queue="charging", died=1_000)
    staged.dead_letters(broker, "charging", 3, "run_evals", "failed", "ValueError: no")
    acting = client()
    first = acting.get("/dead?queue=charging&actor=run_evals").text
    assert "No dead letter matches among the 2,000 that were looked at." in first
    found = acting.get(leads(first, "Search on")).text
    assert found.count("<tr>") == 4
    shown = acting.get(leads(found, "Discard what matches …")).text
    assert "3 letters would be dropped for good" in shown and hidden(shown)["at"] == "charging:2000"
    said = acting.post("/dead/act", data={**hidden(shown), "because": WHY})
    assert "at=charging%3A2000" in said.headers["location"]
    assert last(broker).after == "3 of 3 dropped for good"
    again = acting.post("/dead/act", data={**hidden(shown), "because": WHY})
    assert again.status_code == 400 and "No dead letter matches any more" in again.text
    assert broker.client.zcard(keys.dead(broker.namespace, "charging")) == 2_500


def test_an_act_that_finds_none_among_those_it_looked_at_says_so_and_searches_on(
    client: Client, broker: FleetBroker
) -> None:
    fill(broker, 2_500, queue="charging", died=1_000)
    staged.dead_letters(broker, "charging", 3, "run_evals", "failed", "ValueError: no")
    acting = client()
    page = "/dead/act?do=requeue&queue=charging&actor=run_evals"
    none = acting.get(page).text
    assert "No dead letter matches among the 2,000 that were looked at." in none
    shown = acting.get(leads(none, "Search on")).text
    assert "3 letters would be queued again" in shown
    given = {**hidden(shown), "because": WHY}
    del given["at"]
    answer = acting.post("/dead/act", data=given)
    assert answer.status_code == 400 and "None of the 2,000 dead letters that were looked at matches" in answer.text
    behind = acting.get(f"{page}&at=charging:2503").text
    assert "No dead letter matches from there on." in behind and leads(behind, "From the first on") == page


def test_letters_are_counted_that_were_looked_at_and_not_the_queues_they_lie_in(
    client: Client, broker: FleetBroker
) -> None:
    fill(broker, 1_000, queue="transaction_sync", died=1_000)
    for queue in ("charging", "uploads", "agent_batch", "agent_realtime"):
        fill(broker, 1, queue=queue, died=1_000)
    staged.dead_letters(broker, "housekeeping", 3, "run_evals", "failed", "ValueError: no")
    acting = client()
    assert acting.get("/dead?actor=run_evals").text.count("<tr>") == 4
    assert "3 letters would be dropped for good" in acting.get("/dead/act?do=discard&actor=run_evals").text


@pytest.mark.parametrize("place", ["charging:²", "charging:", "nowhere:3", "charging:-1"])
def test_a_place_that_there_is_not_is_the_first(client: Client, broker: FleetBroker, place: str) -> None:
    fill(broker, 2, queue="charging")
    assert client().get("/dead", params={"at": place}).text.count("<tr>") == 3


@pytest.mark.parametrize(
    ("do", "lost", "told"),
    [
        ("discard", 2, "broke off after 200 of 500 dropped for good: ConnectionError, so that some more may be"),
        ("requeue", 4, "broke off after 3 of 500 queued again: ConnectionError, so that some more may be"),
        ("requeue", 1, "was tried, and nobody knows whether it was done: ConnectionError"),
    ],
)
def test_a_bulk_act_that_breaks_off_stands_in_the_audit_with_how_far_it_came(
    client: Client, broker: FleetBroker, lossy: Proxy, do: str, lost: int, told: str
) -> None:
    fill(broker, 500, queue="charging", died=1_000)
    acting = client()
    given = hidden(acting.get(f"/dead/act?do={do}&queue=charging").text)
    lossy.lose_reply(lost)
    assert acting.post("/dead/act", data={**given, "because": WHY}).status_code == 503
    assert lossy.lost
    row = last(broker)
    assert (row.what, row.subject, row.because, row.after) == (f"dead {do}", "queue=charging", WHY, told)
    assert row.before == "500 dead letters, the first charging-000000"


def test_a_letter_whose_id_is_no_text_and_whose_body_cannot_be_read_is_shown_and_dropped(
    client: Client, broker: FleetBroker
) -> None:
    ns, id = broker.namespace, b"\xff/../\x00?"
    broker.client.zadd(keys.dead(ns, "charging"), {id: 1_000})
    broker.client.hset(keys.dead_bodies(ns, "charging"), id, b"\xff{")  # type: ignore[arg-type]
    acting = client()
    (page,) = re.findall(r'href="(/dead/charging/[^"]+)"', acting.get("/dead?queue=charging").text)
    shown = acting.get(page).text
    assert "cannot be read" in shown
    acting.post("/dead/act", data={**hidden(shown), "do": "discard", "because": WHY})
    assert broker.client.zcard(keys.dead(ns, "charging")) == 0


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
