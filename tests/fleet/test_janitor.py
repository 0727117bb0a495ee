"""A pass measures before it cleans, and is one line however it ends."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from fleet import deadline, janitor
from fleet.errors import DeadlineExceeded
from fleet.janitor import Measured, Stuck
from tests.conftest import ROOT, Environment
from tests.fleet.conftest import Fleet, WriteApp
from tests.fleet.shields import while_counting

HOUR = timedelta(hours=1)


class Shelf:
    """A chore: things by name, of which some cannot be mended, and some are somebody else's by now."""

    def __init__(
        self, *names: str, live: int = 0, scanned: int | None = None, broken: Sequence[str] = (), taken: str = ""
    ) -> None:
        self.names, self.live, self.broken, self.taken = names, live, broken, taken
        self.scanned = len(names) + live if scanned is None else scanned
        self.did: list[str] = []

    def measure(self) -> Measured:
        self.did.append("measure")
        oldest = len(self.names) * HOUR if self.names else None
        return Measured(self.scanned, len(self.names), self.live, oldest)

    def find(self) -> Iterator[Stuck]:
        for name in self.names:
            yield Stuck(name, f"thing {name}", HOUR, "mended")

    def mend(self, stuck: Stuck) -> int:
        self.did.append(stuck.key)
        if stuck.key in self.broken:
            raise ValueError(stuck.key)
        if stuck.key == "redis":
            raise redis.ConnectionError("gone")
        return 0 if stuck.key == self.taken else 1


def passed(name: str, *shelves: Shelf) -> dict[str, Any]:
    """The last line of a pass, whatever it raised."""
    with capture_logs() as lines, suppress(redis.RedisError, DeadlineExceeded):
        janitor.run(name, shelves)
    assert [line["event"] for line in lines if line["event"] == name] == [name]
    return {**lines[-1]}


def test_a_pass_is_one_line_with_what_was_found_and_done() -> None:
    line = passed("dust_shelves", Shelf("a", "b", "c", live=5, scanned=400, taken="c"), Shelf(scanned=12))
    assert line.pop("took").endswith("ms")
    assert line == {
        "event": "dust_shelves",
        "log_level": "warning",
        "janitor": "dust_shelves",
        "verdict": "acted",
        "scanned": 412,
        "stuck": 3,
        "recovered": 2,
        "failed": 0,
        "skipped_live": 6,
        "oldest": "3h00m",
        "runbook": "docs/when-things-go-wrong.md#dust_shelves",
    }


def test_a_pass_with_nothing_to_do_says_so_at_info() -> None:
    line = passed("dust_shelves", Shelf(live=2))
    assert (line["log_level"], line["verdict"], line["stuck"], line["oldest"]) == ("info", "idle", 0, "-")


def test_everything_is_measured_before_anything_is_changed() -> None:
    first, second = Shelf("a"), Shelf("b")
    order: list[str] = first.did
    second.did = order
    passed("dust_shelves", first, second)
    assert order == ["measure", "measure", "a", "b"]


def test_a_thing_that_cannot_be_mended_is_counted_and_the_others_are_mended() -> None:
    names = [f"bad-{number}" for number in range(9)]
    with capture_logs() as lines:
        done = janitor.run("dust_shelves", [Shelf(*names, "good", broken=names)])
    assert (done.verdict, done.recovered, done.failed) == ("failed", 1, 9)
    named = [line["row"] for line in lines if line["event"] == "janitor_row_failed"]
    assert named == [f"thing bad-{number}" for number in range(5)], (
        "a line each for the first few; the last line counts"
    )
    assert lines[-1]["log_level"] == "warning"


def test_a_pass_that_broke_half_way_says_how_far_it_came_and_why() -> None:
    shelf = Shelf("a", "redis", "c")
    line = passed("dust_shelves", shelf)
    assert (line["verdict"], line["stuck"], line["recovered"], line["failed"]) == ("failed", 3, 1, 0)
    assert line["error"] == "ConnectionError: gone"
    assert "c" not in shelf.did


def test_a_pass_that_could_not_even_measure_says_so() -> None:
    class Unreachable(Shelf):
        def measure(self) -> Measured:
            raise redis.ConnectionError("no answer")

    line = passed("dust_shelves", Unreachable())
    assert (line["verdict"], line["scanned"], line["log_level"]) == ("failed", 0, "warning")


def test_a_pass_leaves_with_a_quarter_of_its_budget_left_and_has_not_failed() -> None:
    class Slow(Shelf):
        def mend(self, stuck: Stuck) -> int:
            left = deadline.remaining()
            while (now := deadline.remaining()) and left and left - now < timedelta(seconds=0.1):
                pass
            return super().mend(stuck)

    shelf = Slow(*map(str, range(100)))
    done = deadline.run_within(timedelta(seconds=1), janitor.run, "dust_shelves", [shelf])
    assert done.verdict == "acted"
    assert 3 <= done.recovered <= 8


def test_a_deadline_is_let_through_and_said() -> None:
    class Hangs(Shelf):
        def mend(self, stuck: Stuck) -> int:
            while True:
                pass

    with capture_logs() as lines, pytest.raises(DeadlineExceeded):
        deadline.run_within(timedelta(seconds=0.1), janitor.run, "dust_shelves", [Hangs("a")])
    assert (lines[-1]["verdict"], lines[-1]["stuck"]) == ("failed", 1)


def test_the_line_of_a_janitor_with_a_form_of_its_own_is_the_same() -> None:
    with capture_logs() as lines, janitor.one_pass("sweep_floor") as done:
        done.measured(Measured(scanned=3))
        done.recovered += 2
    (line,) = lines
    assert (line["verdict"], line["log_level"], line["recovered"]) == ("acted", "info", 2)


def test_the_same_numbers_are_metrics() -> None:
    passed("count_shelves", Shelf("a", "bad", "c", live=5, broken=["bad"]))
    passed("count_shelves", Shelf("a", live=4))

    def value(name: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(f"fleet_janitor_{name}", {"janitor": "count_shelves", **labels})

    assert value("passes_total", verdict="failed") == value("passes_total", verdict="acted") == 1
    assert value("rows_total", outcome="recovered") == 3
    assert value("rows_total", outcome="failed") == 1
    assert [value("seen", state=state) for state in ("scanned", "stuck", "skipped_live")] == [5, 1, 4]
    assert value("oldest_seconds") == 3600


def test_a_preview_finds_what_a_pass_would_and_mends_nothing() -> None:
    shelf = Shelf("a", "b", live=1)
    seen, found = janitor.preview([shelf])
    assert (seen, [stuck.subject for stuck in found]) == (Measured(3, 2, 1, 2 * HOUR), ["thing a", "thing b"])
    assert shelf.did == ["measure"]


@pytest.mark.parametrize(
    ("age", "said"),
    [
        (None, "-"),
        (timedelta(seconds=12), "12s"),
        (timedelta(minutes=9, seconds=5), "9m05s"),
        (timedelta(minutes=64), "1h04m"),
        (timedelta(days=3, hours=2), "3d02h"),
    ],
)
def test_an_age_is_short_and_can_be_read(age: timedelta | None, said: str) -> None:
    assert janitor.age(age) == said


def test_a_pass_is_counted_where_no_deadline_strikes(monkeypatch: pytest.MonkeyPatch) -> None:
    shields = while_counting(monkeypatch)
    deadline.run_within(timedelta(minutes=1), janitor.Pass("free_stuck_parcels").end, None)
    assert len(shields) > 4 and set(shields) == {1}


def test_the_janitors_that_an_application_is_told_to_copy_run_there_on_the_engine_alone(
    fleet: Fleet, write_app: WriteApp, environment: Environment
) -> None:
    told = (ROOT / "docs/adding.md").read_text().partition("Three look")[2]
    names = re.findall(r"\]\(\.\./janitors/(\w+)\.py\)", told)
    assert len(names) == 3
    entries = ", ".join(f"entry({name!r})" for name in names)
    root = write_app(lanes="[lane('main', 'greetings', 'housekeeping')]", schedule=f"[{entries}]")
    (root / "janitors").mkdir()
    (root / "janitors/__init__.py").touch()
    for name in names:
        copied = Path(shutil.copy(ROOT / f"janitors/{name}.py", root / "janitors"))
        nodes = ast.walk(ast.parse(copied.read_text()))
        imported = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        assert {module.partition(".")[0] for module in imported} <= {"__future__", "collections", "typing", "fleet"}
    servers = {
        "FLEET_REDIS_URL": environment.redis_url,
        "FLEET_DATABASE_URL": environment.database_url,
        "FLEET_NAMESPACE": environment.namespace,
    }
    assert "nothing found" in fleet(root, "check").stdout
    for name in names:
        done = fleet(root, "janitor", "run", name, **servers)
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"{name}: idle; 0 of 0 recovered, 0 failed.")
