"""How many shields stand where a body counts a metric."""

from __future__ import annotations

from typing import Any

import pytest

from fleet import deadline, metrics


def while_counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Filled with the open shields of each count from now on.

    A metric that was made and not kept can be made no second time: each count after it would fail.
    """
    shields: list[int] = []
    of = metrics._of

    def seen(name: str) -> Any:
        run = deadline.current_run()
        shields.append(run.seat.shields if run is not None else 0)
        return of(name)

    monkeypatch.setattr(metrics, "_of", seen)
    return shields
