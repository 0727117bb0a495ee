"""Figures that README and docs claim in their sentences, and the line that measures each; a test ties the two together.

Not here: those of `docs/scaling.md`, which says itself what printed them and what is reckoned.
`words` stand in the file as they are here. `line` is one of `make bench`, `peers:` one of `make bench-peers`, `test:` a
test, `make:` a command, `module:` a benchmark that takes too long for `make bench`.
"""

from __future__ import annotations

from dataclasses import dataclass

NO_LINE = "none"


@dataclass(frozen=True)
class Stated:
    """A claim with a figure in it."""

    file: str
    words: str
    line: str


STATED = (
    Stated("README.md", "a flood in one takes no process of another", "flood"),
    Stated("README.md", "hands each slot of a schedule to its lane exactly once", "schedulers"),
    Stated("README.md", "or a killed worker loses nothing", "kill"),
    Stated("README.md", "in simulated nights its regret is 0 in the median, 1.7 at worst", "test:tests/nightsim"),
    Stated("README.md", "people's p99 was 0.94 to 1.06 of that", "module:tests.benchmarks.night_four_ways"),
    Stated("README.md", "the sync took 0.65 to 1.14 of the time", "module:tests.benchmarks.night_four_ways"),
    Stated("README.md", "up to a seventh of a second longer (p95)", "module:tests.benchmarks.night_four_ways"),
    Stated("README.md", "a Redis that forgets its last 15 seconds", "test:tests/fleet/test_relay.py"),
    Stated("README.md", "eight hours in two minutes", "make:night"),
    Stated("docs/console.md", "5 ms of its time", "console"),
    Stated("docs/probe.md", "costs the server 1.6 to 2.5 ms", "probe"),
    Stated("docs/probe.md", "Counting costs a job 4 µs", NO_LINE),
    Stated("docs/night.md", "5 ms of Redis's time, 0.2 s of the command's", NO_LINE),
    Stated("docs/outbox.md", "2.0 to 3.0 s were measured", "test:tests/chaos/test_outbox.py"),
    Stated("docs/sentry.md", "A line of the log costs a quarter as much again, to twice as much", "log-lines"),
    Stated("CHANGELOG.md", "500 documents make 2 scans of their table instead of 500", "lookups"),
    Stated("CHANGELOG.md", "from SIGKILL of a child to the restart of its jobs p99 0.2 s", "test:tests/chaos/workers"),
)
