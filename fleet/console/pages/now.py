"""The first page: what is wrong, who is hurt, does it mend itself, what to do; and the figures one looks at next.

It stands on what can be read now. What cannot be read is the first thing it says.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from fleet.broker import keys
from fleet.clock import clock
from fleet.console.desk import Desk
from fleet.console.pages.lanes import rows, running
from fleet.console.problems import problems, waiting_for_people
from fleet.console.rendering import Page
from fleet.workers.presence import present


def build(desk: Desk, request: Request) -> dict[str, Any]:
    client, ns = desk.broker.client, desk.broker.namespace
    reports = present(client, ns)
    lanes = rows(desk, reports)
    jobs = running(reports, clock.real_now())
    people = waiting_for_people(desk)
    return {
        "problems": problems(desk, lanes, reports),
        "lanes": lanes,
        "jobs": jobs,
        "leader": next((report for report in reports if report.kind == "beat" and report.leads), None),
        "beats": sum(report.kind == "beat" for report in reports),
        "dead": sum(queue.dead for lane in lanes for queue in lane.queues),
        "paused": int(client.hlen(keys.paused(ns))),
        "people": people,
    }


PAGE = Page("/", "Now", "now.html", build, live=True)
