"""The Prometheus rules: promtool takes them, each alert fires when it should and only then, and says what to do."""

from __future__ import annotations

import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

RULES = ROOT / "config/deploy/prometheus/rules.yml"
UNIT_TESTS = Path(__file__).parent / "prometheus/rules_test.yml"
RUNBOOK = "docs/when-things-go-wrong.md"


def groups() -> list[dict[str, Any]]:
    read: dict[str, Any] = yaml.safe_load(RULES.read_text())
    return list(read["groups"])


ALERTS = [rule for group in groups() for rule in group["rules"] if "alert" in rule]


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian's package prometheus has it)")
    return subprocess.run([found, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_promtool_takes_the_rules() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_fire_as_their_unit_tests_say() -> None:
    done = promtool("test", "rules", str(UNIT_TESTS))
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_seen_to_fire_in_the_unit_tests_and_not_to() -> None:
    seen: dict[bool, str] = {True: "", False: ""}
    for test in yaml.safe_load(UNIT_TESTS.read_text())["tests"]:
        for asked in test["promql_expr_test"]:
            expected = asked["exp_samples"]
            seen[bool(expected)] += asked["expr"] + str(expected)
    for rule in ALERTS:
        name = rule["alert"]
        alternatives = "|".join({name, *(f"{name[:n]}.\\*" for n in range(8, len(name)))})
        assert re.search(alternatives, seen[True]), f"no unit test sees {name} fire"
        if name != "FleetWatchdog":  # it fires always
            assert re.search(alternatives, seen[False]) or 'alertname!="FleetWatchdog"' in seen[False], name


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_for_how_long_how_bad_what_it_means_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert {"for", "keep_firing_for"} <= rule.keys()
    assert rule["labels"]["severity"] in ("page", "ticket", "none")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert len(rule["annotations"]["summary"]) < 110, "it is a line on a telephone"
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert (page, anchor) == (RUNBOOK, rule["alert"])
    assert f'<a id="{anchor}"></a>' in (ROOT / page).read_text(), f"{page} has no row for {anchor}"


def test_no_two_alerts_have_one_name() -> None:
    names = [rule["alert"] for rule in ALERTS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("figure", "record"), [("age", "oldest"), ("lag", "lag")])
def test_the_limits_of_ages_and_lags_are_those_that_the_fleet_itself_judges_by(figure: str, record: str) -> None:
    from config.lanes import LANES
    from config.thresholds import THRESHOLDS
    from fleet.thresholds import DEFAULT

    limits = {
        rule["labels"]["queue"]: float(re.fullmatch(r"vector\((\d+)\)", rule["expr"])[1])  # type: ignore[index]
        for group in groups()
        for rule in group["rules"]
        if rule.get("record") == f"fleet:queue_{record}_limit_seconds"
    }
    queues = [queue for lane in LANES for queue in lane.queues]
    judged = {queue: getattr(THRESHOLDS.get(queue, DEFAULT), figure).most.total_seconds() for queue in queues}
    assert limits == judged


def test_a_queue_without_a_limit_is_held_to_the_default() -> None:
    from fleet.thresholds import DEFAULT

    (old,) = (rule for rule in ALERTS if rule["alert"] == "FleetQueueOld")
    most = DEFAULT.age.most
    assert isinstance(most, timedelta) and f"> {most.total_seconds():.0f}" in old["expr"]
