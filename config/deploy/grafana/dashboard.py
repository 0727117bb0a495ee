"""Makes dashboard.json of panels.yml, both beside it: `python config/deploy/grafana/dashboard.py`. A test compares.

Made for 03:10: the top row says whether something is wrong, where, and since when; the rows below say why, in the order
in which one asks. Every panel says in a sentence what it shows and what is bad.

Not guaranteed: a figure of queues while no beat is scraped, or its reading is stale; a panel is then empty, not at 0.
"""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
PROVISIONED = "prometheus"  # the uid in provisioning/datasources; another one is chosen on the page
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
RUNBOOK = "docs/when-things-go-wrong.md"
_ACROSS = 24


def dashboard() -> dict[str, Any]:
    """The whole of it, as Grafana imports it."""
    return {
        "uid": "nightshift",
        "title": "Nightshift at 03:10",
        "description": f"The top row says whether something is wrong and where. What each alert means: {RUNBOOK}",
        "tags": ["nightshift"],
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": _variables()},
        "panels": _panels(yaml.safe_load((HERE / "panels.yml").read_text())),
    }


def _panels(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows below one another, the panels of each from left to right in as many lines as they take."""
    ids, made, y = count(1), [], 0
    for row in rows:
        title = {"id": next(ids), "type": "row", "title": row["row"], "collapsed": False, "panels": []}
        made.append({**title, "gridPos": {"x": 0, "y": y, "w": _ACROSS, "h": 1}})
        x, y = 0, y + 1
        for panel in row["panels"]:
            if x + panel["width"] > _ACROSS:
                x, y = 0, y + row["height"]
            place = {"x": x, "y": y, "w": panel["width"], "h": row["height"]}
            made.append(_panel(panel, next(ids), place))
            x += panel["width"]
        y += row["height"]
    return made


def _panel(panel: dict[str, Any], id: int, place: dict[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if "bad_from" in panel:
        steps.append({"color": "red", "value": panel["bad_from"]})
    at_once = panel["kind"] in ("stat", "bargauge")
    drawn = {"fillOpacity": 20, "stacking": {"mode": "normal"}} if panel.get("stacked") else {"fillOpacity": 0}
    defaults = {"unit": panel["unit"], "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    return {
        "id": id,
        "type": panel["kind"],
        "title": panel["title"],
        "description": panel["says"],
        "gridPos": place,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": defaults if at_once else {**defaults, "custom": drawn}, "overrides": []},
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}} if at_once else {"legend": {"displayMode": "list"}},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": DATASOURCE,
                "expr": asked,
                "legendFormat": line or "__auto",
                "instant": at_once,
                "range": not at_once,
            }
            for number, (line, asked) in enumerate(panel["queries"].items())
        ],
    }


def _variables() -> list[dict[str, Any]]:
    queues = "label_values(fleet_queue_depth, queue)"
    return [
        {
            "name": "datasource",
            "label": "Prometheus",
            "type": "datasource",
            "query": "prometheus",
            "current": {"text": "Prometheus", "value": PROVISIONED},
        },
        {
            "name": "queue",
            "label": "Queue",
            "type": "query",
            "datasource": DATASOURCE,
            "query": queues,
            "definition": queues,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "refresh": 2,
            "current": {"text": "All", "value": "$__all"},
        },
    ]


if __name__ == "__main__":
    (HERE / "dashboard.json").write_text(json.dumps(dashboard(), indent=1) + "\n")
