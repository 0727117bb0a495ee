"""KEDA scales on lag, of queues that exist, slowly down, and is not misled by a reading that is missing."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.lanes import LANES
from fleet import app as application
from fleet.declarations import PAST_DRAIN
from fleet.settings import plain_duration
from tests.conftest import ROOT
from tests.deploy.kubernetes import EXAMPLE, Workload, rendered

LAG = {"fleet_queue_oldest_seconds", "fleet_start_lag_seconds_bucket"}


def lanes() -> dict[str, Workload]:
    return rendered(EXAMPLE).lanes()


def scaled() -> dict[str, dict[str, Any]]:
    """Lane -> the specification of what scales it."""
    worked = {load.name: lane for lane, load in lanes().items()}
    specs = [scaling["spec"] for scaling in rendered(EXAMPLE).of_kind("ScaledObject")]
    return {worked[spec["scaleTargetRef"]["name"]]: spec for spec in specs}


def test_each_scales_a_lane_by_the_lag_of_exactly_that_lanes_queues() -> None:
    assert len(scaled()) == len(LANES) - 1
    for lane in LANES:
        for trigger in scaled().get(lane.name, {}).get("triggers", ()):
            query = trigger["metadata"]["query"]
            (queues,) = set(re.findall(r'queue=~"([^"]+)"', query))
            assert set(queues.split("|")) == set(lane.queues), lane.name
            assert LAG & set(re.findall(r"fleet_\w+", query)), "depth alone says nothing of how long anybody waits"


def test_the_lane_of_the_alarm_is_not_scaled_by_what_it_watches() -> None:
    assert "housekeeping" not in scaled()


def test_who_scales_and_who_is_applied_do_not_fight_over_the_number() -> None:
    for lane in scaled():
        assert "replicas" not in lanes()[lane].document["spec"], lane


def test_it_scales_down_one_pod_at_a_time_after_ten_quiet_minutes() -> None:
    for lane, spec in scaled().items():
        down = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
        assert down["stabilizationWindowSeconds"] >= 600, lane
        (policy,) = down["policies"]
        assert (policy["type"], policy["value"]) == ("Pods", 1)
        assert policy["periodSeconds"] >= 300, lane


def test_scaling_down_lets_every_job_end_within_its_budgets() -> None:
    app = application.load(ROOT)
    for lane in scaled():
        (drain,) = [one["value"] for one in lanes()[lane].container["env"] if one["name"] == "FLEET_DRAIN"]
        budgets = [actor.budget for actor in app.actors.values() if actor.queue_name in app.lane(lane).queues]
        longest = max(budget.hard for budget in [app.lane(lane).budget, *budgets] if budget is not None)
        assert (given := plain_duration(drain)) is not None and given >= longest, lane
        assert lanes()[lane].left_for_the_drain >= given + PAST_DRAIN, lane


def test_a_reading_that_is_missing_is_an_error_and_keeps_the_pods_that_run() -> None:
    for lane, spec in scaled().items():
        assert spec["fallback"]["behavior"] == "currentReplicasIfHigher", lane
        assert spec["fallback"]["replicas"] <= spec["minReplicaCount"], (
            f"{lane} would get a pod for being seen by nobody"
        )
        assert all(trigger["metadata"]["ignoreNullValues"] == "false" for trigger in spec["triggers"])
        assert spec["minReplicaCount"] >= 1, "a lane scaled to nothing would be seen by nobody"


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed: the queries were not evaluated")
def test_the_queries_say_lag_zero_for_an_empty_queue_and_nothing_for_a_stale_reading(tmp_path: Path) -> None:
    """Evaluated by Prometheus itself over written series: one lane waits, one is empty, one has no reading."""
    tests = []
    for spec in scaled().values():
        for trigger in spec["triggers"]:
            query = trigger["metadata"]["query"]
            queue = re.findall(r'queue=~"(\w+)', query)[0]
            depth = f'fleet_queue_depth{{queue="{queue}",state="ready"}}'
            for series, samples in (
                ([(depth, "5x20"), *waiting(queue, trigger["name"])], [100.0]),
                ([(depth, "0x20"), *idle(queue, trigger["name"])], [0.0]),
                ([], []),
            ):
                tests.append(promtool_test(query, series, samples))
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def waiting(queue: str, trigger: str) -> list[tuple[str, str]]:
    """Series of a queue whose lag is 100 s."""
    if trigger == "oldest":
        return [(f'fleet_queue_oldest_seconds{{queue="{queue}"}}', "100x20")]
    buckets = {"10": "0x20", "100": "0+95x20", "1000": "0+100x20", "+Inf": "0+100x20"}
    return [(f'fleet_start_lag_seconds_bucket{{queue="{queue}",le="{le}"}}', values) for le, values in buckets.items()]


def idle(queue: str, trigger: str) -> list[tuple[str, str]]:
    """Series of a queue in which nothing waits and nothing started; a rate of nothing has no percentile."""
    if trigger == "oldest":
        return []
    return [(f'fleet_start_lag_seconds_bucket{{queue="{queue}",le="{le}"}}', "7x20") for le in ("10", "+Inf")]


def promtool_test(query: str, series: list[tuple[str, str]], samples: list[float]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series],
        "promql_expr_test": [
            {
                "expr": f"round({query}, 0.001)",
                "eval_time": "15m",
                "exp_samples": [{"labels": "{}", "value": value} for value in samples],
            }
        ],
    }
