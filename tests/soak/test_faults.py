"""A fault undoes itself, whatever becomes of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.soak.faults import Faults


def test_a_postgresql_that_does_not_end_in_time_is_started_all_the_same() -> None:
    started: list[bool] = []

    def kill(_: object) -> None:
        raise AssertionError("a backend is still alive")

    postgres = SimpleNamespace(kill=kill, start=lambda: started.append(True))
    stage: Any = SimpleNamespace(hosts=SimpleNamespace(proxy=None), postgres=postgres)
    faults = Faults(stage, 1)
    faults._cards = [Faults.kill_postgres]
    faults.one()
    assert started and "still alive" in faults.not_made["kill_postgres"]
    assert faults.dealt == {"kill_postgres": 1} and not faults.made
