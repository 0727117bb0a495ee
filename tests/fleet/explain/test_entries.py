"""When an entry comes, what became of it, and what holds its work."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from fleet import by_hand, entry_runs, wire
from fleet.balance_by_hand import hold, release
from fleet.broker import keys
from fleet.clock import Night, clock
from fleet.entry_runs import Run
from fleet.workers.presence import Presence, Report, present
from tests.fleet.explain.conftest import HOUR, MINUTE, NIGHTLY, START, SWEEP, House
from tests.waiting import wait_until


def test_an_entry_says_when_it_comes_what_became_of_it_and_how_long_it_takes(house: House) -> None:
    clock.set_night(Night(origin=START, anchor=clock.real_now(), rate=0.001))
    key = keys.ledger(house.broker.namespace, "nightly")
    for verdict, day in (("expired", 1), ("fired", 0)):
        at = wire.to_ms(START - timedelta(days=day) - 22 * HOUR + 10 * MINUTE)
        house.client.xadd(key, {"verdict": verdict, "from": at, "to": at, "count": 1})
    for number, minutes in enumerate((2, 4)):
        began = START - 21 * HOUR + number * HOUR
        over = began + minutes * MINUTE
        entry_runs.write(house.broker, Run("nightly", f"{number}", "m", None, 1, "w", began, over, over, "done"))
    assert house.told("nightly") == [
        "cron 10 3 * * * (UTC), lane banks: banks have closed their day",
        "Next slot 03:10 (in 2h10m); it may start until 2h after that; NO beat leads, so no slot fires.",
        "Last verdicts, newest first: Sun 01 Mar 03:10 fired; Sat 28 Feb 03:10 expired.",
        "Last run began Sun 01 Mar 05:00: done after 4m; p50 2m, p95 4m of 2; soft budget 2m.",
    ]


def test_an_entry_that_is_paused_says_by_whom(house: House) -> None:
    by_hand.pause(house.broker, "nightly", by="maria", because="the mail host moves")
    assert "PAUSED by maria since" in house.said("nightly") and "`fleet resume nightly`" in house.said("nightly")


def test_an_entry_whose_message_waits_says_where(house: House) -> None:
    house.send()
    id = by_hand.fire_now(house.app, house.broker, NIGHTLY, by="maria", because="the audit was late")
    assert f"Its message that a person sent waits behind 1 of 2 in work: `fleet explain {id}`." in house.said("nightly")


def test_the_leading_beat_is_named(house: House) -> None:
    report = Report("beat", "beat", pid=1, host="night-2", leads=True)
    presence = Presence(house.client, house.broker.namespace, lambda: report)
    presence.start()
    wait_until(lambda: present(house.client, house.broker.namespace))
    said = house.said("nightly")
    presence.stop()
    assert "the beat on night-2 leads" in said


def decide(house: House, at: datetime, places: int, reason: str, text: str, **numbers: Any) -> None:
    ns, now = house.broker.namespace, clock.now()
    row = {"at": wire.to_ms(at), "places": places, "reason": reason, "text": text, "epoch": 1}
    house.client.xadd(keys.decisions(ns, "sweep"), {**row, "numbers": json.dumps(numbers)})
    lease = {"places": places, "reason": reason, "until": wire.to_ms(now + 3 * MINUTE)}
    house.client.set(keys.allowance(ns, "sweep"), json.dumps(lease), ex=600)


def test_elastic_work_says_what_it_is_held_at_since_when_why_and_by_when_it_ends(house: House) -> None:
    clock.set_night(Night(origin=START + 46 * MINUTE, anchor=clock.real_now(), rate=0.001))
    decide(house, START + 2 * MINUTE, 4, "calm", "grown to 4 of 4: nobody waits")
    why = "people waited 1.8 s; grows again after 3 calm minutes; finishes 04:4{} at this pace, deadline 06:15"
    for minute in range(2):
        decide(house, START + (14 + minute) * MINUTE, 2, "hot", f"held at 2 of 4: {why.format(minute)}")
    assert f"Elastic: held at 2 of 4 since 01:14: {why.format(1)}." in house.told("sweep")


def test_elastic_work_of_which_no_decision_is_kept_says_what_is_allowed(house: House) -> None:
    clock.set_night(Night(origin=START, anchor=clock.real_now(), rate=0.001))
    decide(house, START - MINUTE, 1, "calm", "there is room")
    decide(house, START, 3, "calm", "there is room")
    assert "Elastic: 3 of 4 allowed since 01:00: there is room." in house.told("sweep")
    house.client.delete(keys.decisions(house.broker.namespace, "sweep"))
    assert "Elastic: 3 of 4 chains are allowed (calm); no decision of it is on record." in house.told("sweep")


def test_paused_elastic_work_says_that_no_chain_of_it_begins_a_chunk(house: House) -> None:
    clock.set_night(Night(origin=START, anchor=clock.real_now(), rate=0.001))
    decide(house, START - MINUTE, 0, "calm", "there is room")
    by_hand.pause(house.broker, "sweep", by="maria", because="the bank is down")
    said = house.said("sweep")
    assert "none of its chains begins a chunk, until `fleet resume sweep`" in said
    assert "Elastic: 0 of 4 chains are allowed while it is paused; deadline 06:15." in said


def test_elastic_work_that_was_just_held_says_so_and_released_when_it_begins_again(house: House) -> None:
    clock.set_night(Night(origin=START, anchor=clock.real_now(), rate=0.001))
    decide(house, START - MINUTE, 3, "calm", "there is room")
    hold(house.broker, SWEEP, START + HOUR, by="maria", because="the bank is down")
    assert "Elastic: 0 of 4 chains are allowed while it is held; deadline 06:15." in house.told("sweep")
    decide(house, START, 0, "held", "held by maria until 02:00 UTC: the bank is down")
    release(house.broker, SWEEP, by="maria", because="the bank is back")
    assert "Elastic: it begins again with the balancer's next minute; deadline 06:15." in house.told("sweep")


def test_elastic_work_whose_balancer_cannot_see_is_told_as_decided_and_with_a_quota_to_its_deadline(
    house: House,
) -> None:
    assert SWEEP.elastic is not None
    limited = replace(SWEEP, elastic=replace(SWEEP.elastic, quota="model"))
    house.app, house.broker.entries = replace(house.app, schedule=(limited,)), {limited.name: limited}
    clock.set_night(Night(origin=START, anchor=clock.real_now(), rate=0.001))
    level = "so the cron slot stands: 0 of 4 chains from 04:00 to 06:15; deadline 06:15"
    assert f"Elastic: nobody decides, {level}." in house.told("sweep")
    why = "the fleet cannot be seen, so the cron slot stands: all from 04:00 to 06:15"
    decide(house, START, 0, "blind", f"held at 0 of 4: {why}")
    assert f"Elastic: held at 0 of 4 since 01:00: {why}." in house.told("sweep")


def test_elastic_work_that_nobody_decides_on_says_that_the_cron_slot_stands(house: House) -> None:
    clock.set_night(Night(origin=START, anchor=clock.real_now(), rate=0.001))
    assert "nobody decides, so the cron slot stands: 0 of 4 chains from 04:00 to 07:00" in house.said("sweep")
    clock.set_night(Night(origin=START - 45 * MINUTE, anchor=clock.real_now(), rate=0.001))
    assert "its window opens at 00:30 (in 1" in house.said("sweep")
