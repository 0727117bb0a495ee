"""The sandbox bank's request log: one JSON line a request, the judge that a night's report checks records against.

Each line is one `write` to a file opened for appending: lines of several writers never mix, and nothing is buffered
that a SIGKILL could take along.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path

from fleet.clock import clock


class Journal:
    """Appends to `path`; without one, nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def line(
        self,
        *,
        started: datetime,
        method: str,
        path: str,
        query: str,
        account: str | None,
        status: int,
        rows: int,
        fault: str | None,
    ) -> None:
        """One request: `time` and `latency` (seconds) in night time, `real` in seconds since 1970."""
        if self._file is None:
            return
        now = clock.now()
        entry = {
            "time": now.isoformat(),
            "real": clock.real_now().timestamp(),
            "method": method,
            "path": path,
            "query": query,
            "account": account,
            "status": status,
            "rows": rows,
            "latency": round((now - started).total_seconds(), 3),
            "fault": fault,
        }
        os.write(self._file, json.dumps(entry).encode() + b"\n")
