"""The dashboard is what its script makes, can be imported, and asks for what is exported, as the rules do."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY, CollectorRegistry

from fleet import metrics, read_gauges
from tests.conftest import ROOT
from tests.deploy.test_rules import groups, promtool

FOLDER = ROOT / "config/deploy/grafana"
BOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
ASKED = [target["expr"] for panel in PANELS for target in panel["targets"]]
RULES = [rule for group in groups() for rule in group["rules"]]
OF_PROMETHEUS = {"ALERTS": {"alertstate", "alertname", "severity"}}
OF_THE_SCRAPE = {"job", "instance", "le"}


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """Every sample's name and its labels, as a scrape shows them once each metric was counted."""
    for count in (
        lambda: metrics.begin_worker(["q"]),
        lambda: metrics.begin_lane("l", ["q"]),
        lambda: metrics.begin_beat(["e"], ["fired"], ["room"]),
        lambda: metrics.message_ended("q", "a", "done"),
        lambda: metrics.job_took("q", "a", 1),
        lambda: metrics.sweep_ended("s", "done", 1, 0),
        lambda: metrics.janitor_passed("j", "idle", 1, levels={"stuck": 0}, rows={"failed": 0}, oldest=0),
        lambda: metrics.stale_write("t"),
        lambda: metrics.slot_claim("e", "first"),
        lambda: metrics.outbox(0, 0, 0.0),
        lambda: metrics.lane_processes("l", 1, 1),
        lambda: metrics.balancer_tick("room"),
    ):
        count()
    read = CollectorRegistry()
    read.register(
        read_gauges.ReadGauges({"all": lambda: [(m.name, m.labels, 0) for m in metrics.EXPORTED if m.kind == "read"]})
    )
    found: dict[str, set[str]] = {}
    for registry in (REGISTRY, read):
        for family in registry.collect():
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def recorded() -> dict[str, set[str]]:
    """What rules record, with the labels they keep."""
    found: dict[str, set[str]] = {}
    for rule in (rule for rule in RULES if "record" in rule):
        kept = re.search(r"by \(([^)]*)\)", rule["expr"])
        labels = set(rule.get("labels", ())) | set(re.split(r",\s*", kept[1]) if kept else ())
        found.setdefault(rule["record"], set()).update(labels)
    return found


def names_of(query: str) -> dict[str, set[str]]:
    """The metrics that a query asks for, each with the labels that it chooses by."""
    found: dict[str, set[str]] = {}
    for name, chosen in re.findall(r"\b(fleet[_:][\w:]*|ALERTS)(?:\{([^}]*)\})?", query):
        found.setdefault(name, set()).update(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", chosen))
    return found


def joined_by(query: str) -> set[str]:
    return {
        label for group in re.findall(r"(?:by|on) \(([^)]*)\)", query) for label in re.split(r",\s*", group) if label
    }


@pytest.mark.parametrize("query", [*ASKED, *(rule["expr"] for rule in RULES)])
def test_a_query_asks_for_what_is_exported_by_labels_that_it_has(query: str, exported: dict[str, set[str]]) -> None:
    known = exported | recorded() | OF_PROMETHEUS
    asked = names_of(query)
    assert asked or query.startswith("vector("), query
    for name, labels in asked.items():
        assert name in known, f"{name} is not exported"
        assert labels <= known[name] | OF_THE_SCRAPE, f"{name} has the labels {sorted(known[name])}"
    assert joined_by(query) <= {label for name in asked for label in known[name]} | OF_THE_SCRAPE


def test_each_metric_that_is_exported_is_asked_for_by_a_rule_or_shown(exported: dict[str, set[str]]) -> None:
    asked = {name for query in (*ASKED, *(rule["expr"] for rule in RULES)) for name in names_of(query)}
    unseen = {metric.name for metric in metrics.EXPORTED if not any(name.startswith(metric.name) for name in asked)}
    assert unseen <= {"fleet_janitor_seconds"}, "a metric that nobody looks at is not there"


def test_promtool_can_read_each_query(tmp_path: Path) -> None:
    rules = [{"record": f"asked:{number}", "expr": query.replace("$queue", ".*")} for number, query in enumerate(ASKED)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": rules}]}))
    done = promtool("check", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_file_is_what_the_script_makes() -> None:
    made = runpy.run_path(str(FOLDER / "dashboard.py"))["dashboard"]()
    assert made == BOARD, "run python config/deploy/grafana/dashboard.py"


def test_panels_have_ids_of_their_own_a_datasource_a_unit_and_a_sentence() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in PANELS:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["fieldConfig"]["defaults"]["unit"] in ("s", "none", "short", "ops"), panel["title"]
        assert len(panel["description"].split()) > 3, panel["title"]
        assert [target["refId"] for target in panel["targets"]] == [chr(65 + n) for n in range(len(panel["targets"]))]
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
    assert [one["name"] for one in BOARD["templating"]["list"]] == ["datasource", "queue"]


def test_no_two_panels_lie_on_one_another_and_the_first_row_fits_a_screen() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]
    second = [panel for panel in BOARD["panels"] if panel["type"] == "row"][1]
    assert second["gridPos"]["y"] <= 8


def test_what_an_alert_says_of_its_labels_is_there_when_it_fires() -> None:
    known = recorded()
    for rule in (rule for rule in RULES if "alert" in rule):
        named = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        kept = {label for name in names_of(rule["expr"]) for label in known.get(name, ())} | joined_by(rule["expr"])
        assert named <= kept, rule["alert"]
