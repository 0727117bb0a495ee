"""Two small runs as `make bench` and `make bench-peers` write them, and a line of a history, for tests of the page."""

from __future__ import annotations

from typing import Any

BENCH: dict[str, Any] = {
    "measured": "2026-01-02",
    "machine": "a machine",
    "versions": "Python 3",
    "rounds": 3,
    "settings": "defaults",
    "claims": [
        {
            "name": "drain",
            "work": "no-ops",
            "load": 0.1,
            "lines": [
                {
                    "figure": "messages/s",
                    "ours": "ours: 8",
                    "other": "stock: 4",
                    "ratio": 2.0,
                    "aim": ">= 5x",
                    "verdict": "NOT MET",
                }
            ],
        }
    ],
    "alone": {"board": {"work": "what a job pays", "load": 0.2, "said": ["1 µs | a job"]}},
}
PEERS: dict[str, Any] = {
    "measured": "2026-01-02",
    "machine": {"python": "3"},
    "rounds": 2,
    "settings": {"celery": "late acknowledgement, since a ledger wants it"},
    "works": {"idle": ["send to start", "ms", False], "drain-8": ["no-ops", "messages/s", True]},
    "figures": {
        "idle": {"nightshift": {"p50": [2.0]}, "dramatiq": {"p50": [300.0, 500.0]}, "rq": "no threads"},
        "drain-8": {"nightshift": {"drain": [8.0]}, "dramatiq": {"drain": [4.0]}, "huey": {"drain": [6.0]}},
    },
}
STRUCK = [
    {"line": "drain", "figure": "messages/s", "was": "7", "measured": "2025-12-31", "now": "8", "reason": "less work"}
]
