"""Connections that docs/scaling.md reckons are those of the lanes as they are declared, with the processes it names."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from fleet import app as application
from fleet.doctor_postgres import needed
from fleet.settings import Settings
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "scaling.md").read_text()
SIZES = ("1×", "10×", "100×", "1000×")
_BEATS = 7 + 4  # of the page: one that leads, one that follows


def row(begins: str) -> list[int]:
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {begins}")]
    return [int(cell.strip().replace(",", "")) for cell in line.split("|")[2:-1]]


@pytest.mark.parametrize("size", SIZES)
def test_connections_are_those_of_so_many_processes(size: str) -> None:
    at, app = SIZES.index(size), application.load(ROOT)
    named = dict(re.findall(r"^\| (processes of `(\w+)`)", PAGE, re.MULTILINE))
    many = {lane: row(begins)[at] for begins, lane in named.items()}
    grown = replace(
        app, lanes=tuple(replace(lane, processes=many.get(lane.name, lane.processes)) for lane in app.lanes)
    )
    assert set(many) == {"transaction_sync", "transaction_postprocess", "agent_batch"}
    assert row("connections to PostgreSQL")[at] == sum(needed(grown, Settings().database_pool).values())
    processes = sum(lane.processes for lane in grown.lanes)
    assert row("connections to Redis")[at] == 6 * processes + 3 * len(grown.lanes) + _BEATS
