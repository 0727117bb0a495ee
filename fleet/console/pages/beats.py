"""Beats: who leads, since when, in which term; and who would take over."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from fleet.broker import keys
from fleet.console.desk import Desk
from fleet.console.rendering import Page
from fleet.workers.presence import present


def build(desk: Desk, request: Request) -> dict[str, Any]:
    client, ns = desk.broker.client, desk.broker.namespace
    with client.pipeline(transaction=False) as pipe:
        pipe.get(keys.leader(ns))
        pipe.pttl(keys.leader(ns))
        pipe.get(keys.epoch(ns))
        token, left, epoch = pipe.execute()
    return {
        "token": token.decode(errors="replace") if token else None,
        "left": max(0, left) / 1000,
        "epoch": int(epoch or 0),
        "beats": [report for report in present(client, ns) if report.kind == "beat"],
    }


PAGE = Page("/beats", "Beats", "beats.html", build, live=True)
