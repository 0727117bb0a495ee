"""Alerts in a real Redis: said once, by whoever judges, whoever dies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from fleet import alerts
from fleet.alerts import Finding, Rule
from fleet.broker import FleetBroker, keys
from fleet.clock import clock

MINUTE, TICK = timedelta(minutes=1), timedelta(microseconds=1)
TEN_PAST_THREE = datetime(2026, 11, 30, 3, 10, tzinfo=UTC)
RULE = Rule(timedelta(0), timedelta(0))
RULES = {"queue_old": RULE, "dead_letters": RULE}
OLD = Finding("queue_old", "post", "oldest_age", "0:07:00", "0:05:00", "Hurt: whoever waits for post.", "mail")


@pytest.fixture
def broker(redis_url: str, namespace: str) -> Iterator[FleetBroker]:
    made = FleetBroker(url=redis_url, namespace=namespace)
    yield made
    made.client.connection_pool.disconnect()
    clock.freeze(None)


def stand_at(after: timedelta) -> None:
    """Let night time stand so long after ten past three."""
    clock.freeze(TEN_PAST_THREE + after)


def said(broker: FleetBroker, *findings: Finding, rules: Any = RULES) -> list[Any]:
    """The lines of one look."""
    with capture_logs() as logs:
        alerts.judge(broker, findings, rules)
    return [line for line in logs if line["event"].startswith("alert_")]


def test_an_alert_opens_with_one_critical_line_that_says_all_there_is_to_know(broker: FleetBroker) -> None:
    (line,) = said(broker, OLD)
    assert (line["event"], line["log_level"]) == ("alert_opened", "critical")
    told = {name: line[name] for name in ("kind", "subject", "lane", "figure", "found", "threshold", "runbook")}
    assert told == {
        "kind": "queue_old",
        "subject": "post",
        "lane": "mail",
        "figure": "oldest_age",
        "found": "0:07:00",
        "threshold": "0:05:00",
        "runbook": "#queue_old",
    }
    assert "whoever waits" in line["means"] and line["since"].endswith("+00:00")


def test_it_opens_once_and_closes_once_however_often_it_is_looked_at(broker: FleetBroker) -> None:
    assert [line["event"] for _ in range(3) for line in said(broker, OLD)] == ["alert_opened"]
    assert [line["event"] for _ in range(3) for line in said(broker)] == ["alert_closed"]
    assert broker.client.exists(keys.alerts(broker.namespace)) == 0
    assert [line["event"] for line in said(broker, OLD)] == ["alert_opened"]


def test_what_was_said_is_not_said_again_in_the_minutes_after(broker: FleetBroker) -> None:
    stand_at(timedelta(0))
    assert [line["event"] for line in said(broker, OLD)] == ["alert_opened"]
    for seconds in range(0, 200, 20):
        stand_at(timedelta(seconds=seconds))
        assert said(broker, OLD) == [], f"said again after {seconds} s"


def test_what_is_open_is_listed_longest_first_with_its_latest_figure(broker: FleetBroker) -> None:
    dead = Finding("dead_letters", "post", "dead_growth", "1", "0", "It is not done.")
    said(broker, OLD)
    said(broker, OLD, dead)
    worse = Finding("queue_old", "post", "oldest_age", "0:09:00", "0:05:00", "Hurt: whoever waits for post.", "mail")
    said(broker, worse, dead)
    assert [alert.finding for alert in alerts.open_alerts(broker)] == [worse, dead]
    assert all(alert.opened >= alert.since for alert in alerts.open_alerts(broker))


def test_a_finding_that_is_gone_before_its_time_is_never_told(broker: FleetBroker) -> None:
    patient = {"queue_old": Rule(timedelta(hours=1), timedelta(0))}
    assert said(broker, OLD, rules=patient) == []
    assert alerts.open_alerts(broker) == []
    assert said(broker, rules=patient) == []
    assert broker.client.exists(keys.alerts(broker.namespace)) == 0


def test_times_are_night_time(broker: FleetBroker) -> None:
    patient = {"queue_old": Rule(MINUTE, MINUTE)}
    stand_at(timedelta(0))
    assert said(broker, OLD, rules=patient) == []
    stand_at(MINUTE - TICK)
    assert said(broker, OLD, rules=patient) == []
    stand_at(MINUTE)
    assert [line["event"] for line in said(broker, OLD, rules=patient)] == ["alert_opened"]
    stand_at(2 * MINUTE - TICK)
    assert said(broker, rules=patient) == []
    stand_at(2 * MINUTE)
    (line,) = said(broker, rules=patient)
    assert (line["event"], line["lasted"]) == ("alert_closed", "0:01:00")


def test_a_rule_of_a_subject_goes_before_that_of_its_kind(broker: FleetBroker) -> None:
    rules = {"queue_old": RULE, "queue_old:post": Rule(timedelta(hours=1), timedelta(0))}
    other = Finding("queue_old", "other", "oldest_age", "0:07:00", "0:05:00", "It waits.")
    assert [line["subject"] for line in said(broker, OLD, other, rules=rules)] == ["other"]


def test_who_looks_at_some_kinds_only_closes_nothing_of_the_others(broker: FleetBroker) -> None:
    said(broker, OLD)
    assert said(broker, rules={"dead_letters": RULE}) == []
    assert [alert.finding for alert in alerts.open_alerts(broker)] == [OLD]


def test_a_finding_without_a_rule_is_an_error(broker: FleetBroker) -> None:
    with pytest.raises(KeyError, match="queue_old"):
        alerts.judge(broker, [OLD], {"dead_letters": RULE})


def test_of_many_judges_at_once_one_opens_and_one_closes(redis_url: str, namespace: str) -> None:
    judges = [FleetBroker(url=redis_url, namespace=namespace) for _ in range(8)]
    with capture_logs() as logs:
        for findings in ([OLD], []):
            start = threading.Barrier(len(judges))

            def look(broker: FleetBroker, start: Any = start, findings: Any = findings) -> None:
                start.wait()
                alerts.judge(broker, findings, RULES)

            threads = [threading.Thread(target=look, args=(broker,)) for broker in judges]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert [line["event"] for line in logs if line["event"].startswith("alert_")] == ["alert_opened", "alert_closed"]
    for broker in judges:
        broker.client.connection_pool.disconnect()


def test_what_a_judge_died_before_saying_is_said_by_the_next_a_minute_later(
    broker: FleetBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_at(timedelta(0))
    with monkeypatch.context() as patched:
        patched.setattr(alerts, "_say", _die)
        with pytest.raises(SystemExit):
            alerts.judge(broker, [OLD], RULES)
    assert [alert.finding for alert in alerts.open_alerts(broker)] == [OLD]
    stand_at(MINUTE - TICK)
    assert said(broker, OLD) == []  # whoever opened it may be about to say it
    stand_at(MINUTE)
    (line,) = said(broker, OLD)
    assert line["event"] == "alert_opened"
    assert said(broker, OLD) == []


def test_a_close_that_its_judge_died_before_saying_is_said_by_the_next(
    broker: FleetBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_at(timedelta(0))
    said(broker, OLD)
    with monkeypatch.context() as patched:
        patched.setattr(alerts, "_say", _die)
        with pytest.raises(SystemExit):
            alerts.judge(broker, [], RULES)
    assert alerts.open_alerts(broker) == []
    stand_at(MINUTE - TICK)
    assert said(broker, OLD) == []  # not before its close is said
    stand_at(MINUTE)
    assert [line["event"] for line in said(broker, OLD)] == ["alert_closed"]
    assert [line["event"] for line in said(broker, OLD)] == ["alert_opened"]


def _die(*_: object) -> None:
    raise SystemExit


def test_what_another_version_wrote_is_passed_over_and_said(broker: FleetBroker, redis_client: redis.Redis) -> None:
    redis_client.hset(keys.alerts(broker.namespace), mapping={"queue_old:post": "{}", "dead_letters:post": "not json"})
    with capture_logs() as logs:
        assert alerts.open_alerts(broker) == []
    assert [line["key"] for line in logs] == ["queue_old:post", "dead_letters:post"]
    assert [line["event"] for line in said(broker, OLD) if line["event"] != "alert_unreadable"] == ["alert_opened"]


def test_alerts_are_forgotten_when_nobody_judges_for_a_week(broker: FleetBroker) -> None:
    said(broker, OLD)
    assert timedelta(days=6).total_seconds() < broker.client.ttl(keys.alerts(broker.namespace)) <= 7 * 86_400
