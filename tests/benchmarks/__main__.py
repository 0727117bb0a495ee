"""`python -m tests.benchmarks [--rounds 5] [--only WORD]`: every claim, then one table.

The server is the one that FLEET_REDIS_URL names, or an embedded Valkey without persistence. To measure on one CPU, pin
everything: `taskset -c 0 make bench`.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path

import redis

from fleet import embedded
from tests.benchmarks import drain, fan_out, idle_queues, latency_idle, latency_steady, sleepers
from tests.benchmarks.contest import Claim, Comparison, play
from tests.benchmarks.stage import Stage

CLAIMS: tuple[Claim, ...] = (
    latency_idle.CLAIM,
    latency_steady.CLAIM,
    fan_out.CLAIM,
    fan_out.WITH_HOOKS,
    drain.CLAIM,
    drain.ONE_BY_ONE,
    sleepers.CLAIM,
    idle_queues.CLAIM,
)
_HEAD = ("work", "figure", "ours", "stock", "ratio", "aim")


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often each contender is measured (5)")
    parser.add_argument("--only", default="", help="only the claims whose work has this word")
    asked = parser.parse_args()
    claims = [claim for claim in CLAIMS if asked.only in claim.work]
    if not claims:
        parser.error(f"--only {asked.only}: no claim has this word; there are: {'; '.join(c.work for c in CLAIMS)}")
    url = os.environ.get("FLEET_REDIS_URL", "")
    with (
        tempfile.TemporaryDirectory(prefix="fleet-bench-") as folder,
        embedded.servers(Path(folder), embedded.Wanted(valkey=not url, postgres=False)) as started,
    ):
        stage = Stage(url or started.redis_url)
        if not url:
            stage.client.config_set("appendonly", "no")
        lines = [line for claim in claims for line in play(claim, stage, asked.rounds)]
        _print(lines, stage.client, asked.rounds)


def _print(lines: list[Comparison], client: redis.Redis, rounds: int) -> None:
    server = client.info("server")
    name = f"{server.get('server_name', 'redis')} {server.get('valkey_version', server['redis_version'])}"
    cores = f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} cores"
    libraries = f"dramatiq {version('dramatiq')}, redis-py {version('redis')}"
    print(f"\n{platform.machine()}, {cores}, Python {platform.python_version()}, {libraries}, {name};")
    print(
        f"medians of {rounds}, contenders in turn (lowest and highest beside); the ratio says how much better we are.\n"
    )
    cells = [_HEAD, *(line.cells() for line in lines)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD))]
    for row in cells:
        print(" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
