"""Asks for known faults of what is locked: `python -m tests.dependency_audit FILE…`, a part of `make check`.

Exit 1 with a line a fault; one of a peer (`requirements-peers/`), which is only measured against, is told. Where nobody
could be asked (no network, a mirror that holds no advisories) it says so in as many words, and exits 0: a check that
needs somebody else's server must not stop work without it.

Not guaranteed: anything about what nobody has reported yet, nor about packages that are named as not looked at.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

LIMIT_SECONDS = 180
PEERS = "requirements-peers/"


def main(files: list[str]) -> int:
    """Audit each file; returns the exit code."""
    found = [(file, *_asked(file)) for file in files]
    for file, rows, why in found:
        print(_said(file, rows, why))
    own, of_peers = (
        {line for file, rows, _ in found if (PEERS in file) is peer for row in rows for line in _faults(row)}
        for peer in (False, True)
    )
    for line in [*sorted(own), *(f"{line} (of a peer, told only)" for line in sorted(of_peers - own))]:
        print(line)
    return 1 if own else 0


def _asked(file: str) -> tuple[list[dict[str, Any]], str]:
    """What was said of each package; and why nothing was, if so."""
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--format", "json"]
    command += ["--progress-spinner", "off", "--timeout", "5", "--requirement", file]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
        rows: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        return [], f"no answer within {LIMIT_SECONDS} s"
    except (ValueError, KeyError):
        return [], (done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1][:200]
    return rows, ""


def _said(file: str, rows: list[dict[str, Any]], why: str) -> str:
    asked = [row for row in rows if "vulns" in row]
    if not asked:
        reason = why or next((str(row.get("skip_reason")) for row in rows), "it lists no packages")
        return f"pip-audit DID NOT RUN for {file}: {reason}"
    skipped = sorted(str(row["name"]) for row in rows if "vulns" not in row)
    left = f"; NOT looked at: {', '.join(skipped)}" if skipped else ""
    return f"pip-audit: {len(asked)} packages of {file} looked at{left}"


def _faults(row: dict[str, Any]) -> list[str]:
    name = f"{row['name']} {row.get('version')}"
    return [
        f"{name}: {fault['id']}, mended in {', '.join(fault['fix_versions']) or 'no version yet'}"
        for fault in row.get("vulns", ())
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
