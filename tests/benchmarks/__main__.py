"""`python -m tests.benchmarks [--rounds N] [--only NAME] [--json FILE]`: every claim, then one table.

The server is the one that FLEET_REDIS_URL names, or an embedded Valkey without persistence. A PostgreSQL, where a line
wants one, is always an embedded one. The file is written after each line. What fails is told and kept in words, the
other lines are measured, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleet import embedded
from tests.benchmarks import (
    backlogs,
    beat,
    board,
    console,
    drain,
    fan_out,
    idle_queues,
    latency_idle,
    latency_steady,
    log_lines,
    lookups,
    payloads,
    probing,
    promises,
    relay,
    report,
    scaling,
    sleepers,
    uploads,
)
from tests.benchmarks.contest import Claim, Outcome, play
from tests.benchmarks.stage import Stage

CLAIMS: tuple[Claim, ...] = (
    latency_idle.CLAIM,
    latency_steady.CLAIM,
    *fan_out.CLAIMS,
    relay.CLAIM,
    drain.CLAIM,
    drain.ONE_BY_ONE,
    sleepers.CLAIM,
    idle_queues.CLAIM,
    *promises.CLAIMS,
)
_ALONE = {
    "backlogs": "a small customer beside another's 10,000 documents, and the queries over a million rows",
    "beat": "one fire, 1,000 due at one instant, 10,000 held",
    "board": "what the in-flight board costs a job",
    "console": "what each page of the console costs Redis while a million messages wait",
    "probe": "what reading 50 queues of a million messages costs the server",
    "encryption": "what sealing a message's arguments costs it",
    "log-lines": "what scrubbing costs a log line",
    "lookups": "scans of categories a document, read for each and kept",
    "scaling": "what one more job, message, process and row costs",
    "uploads": "a person's uploads while a full backlog drains",
}
_LINES = {claim.name: claim.work for claim in CLAIMS} | _ALONE


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=__doc__,
        epilog="lines:\n" + "\n".join(f"  {name:22}{work}" for name, work in _LINES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="how often each contender is measured (5)")
    parser.add_argument("--only", default="", metavar="NAME", help="only the lines with this in their name")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go, for docs/benchmarks.md")
    asked = parser.parse_args()
    if asked.rounds < 1:
        parser.error(f"--rounds {asked.rounds}: at least 1")
    if not any(asked.only in name for name in _LINES):
        parser.error(f"--only {asked.only}: no such line; there are {', '.join(_LINES)}")
    claims = [claim for claim in CLAIMS if asked.only in claim.name]
    if not _measure(claims, asked.rounds, only=asked.only, kept=asked.json):
        raise SystemExit("not everything was measured: what failed is said above")


def _measure(claims: list[Claim], rounds: int, *, only: str, kept: Path | None) -> bool:
    """Whether everything was measured."""
    url = os.environ.get("FLEET_REDIS_URL", "")
    wanted = embedded.Wanted(
        valkey=not url,
        postgres=any(only in name for name in ("lookups", "backlogs", "console", "scaling"))
        or any(claim.wants_database for claim in claims),
    )
    with (
        tempfile.TemporaryDirectory(prefix="fleet-bench-") as folder,
        embedded.servers(Path(folder), wanted) as started,
    ):
        stage = Stage(url or started.redis_url, own_server=not url, database_url=started.database_url)
        if stage.own_server:
            stage.client.config_set("appendonly", "no")
        possible = [claim for claim in claims if stage.own_server or not claim.pins_server]
        versions = report.versions_of(stage.client)
        outcomes: list[Outcome] = []
        said: dict[str, dict[str, Any]] = {}

        def keep() -> None:
            if kept is not None:
                found = report.as_json(outcomes, said, versions, rounds)
                kept.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")

        for claim in possible:
            outcomes.append(play(claim, stage, rounds))
            keep()
        report.show(outcomes, versions, rounds)
        whole = not any(outcome.failed for outcome in outcomes)
        for name, work in _alone(stage, rounds).items():
            if only in name:
                load = round(os.getloadavg()[0], 2)
                lines, went_through = report.said_by(work)
                said[name] = {"work": _ALONE[name], "load": load, "said": lines}
                whole = whole and went_through
                keep()
    for claim in claims:
        if claim not in possible:
            print(
                f"{claim.name}: not measured, since the server at FLEET_REDIS_URL cannot be bound to a CPU from here."
            )
    return whole


def _alone(stage: Stage, rounds: int) -> dict[str, Callable[[], None]]:
    """The lines of `_ALONE`: each prints what it found."""
    return {
        "beat": lambda: beat.report(stage, rounds),
        "console": lambda: console.report(stage.redis_url, stage.database_url),
        "probe": lambda: probing.report(stage, rounds),
        "lookups": lambda: lookups.report(stage.database_url),
        "backlogs": lambda: backlogs.report(stage.database_url),
        "scaling": lambda: scaling.report(stage, stage.database_url),
        "uploads": lambda: uploads.report(stage),
        "board": lambda: board.report(rounds),
        "encryption": lambda: payloads.report(rounds),
        "log-lines": lambda: log_lines.report(rounds),
    }


if __name__ == "__main__":
    main()
