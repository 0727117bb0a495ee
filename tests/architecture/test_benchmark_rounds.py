"""A benchmark's rounds: what breaks loses no other figure, who is measured holds and counts what it should."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from middleware import default_order
from tests.architecture.benchmark_runs import BENCH, PEERS, STRUCK
from tests.benchmarks import contest, drain, page, report
from tests.benchmarks.jobs import broker_of
from tests.benchmarks.peers import __main__ as peers_main
from tests.benchmarks.peers.measures import Measure, doubled
from tests.benchmarks.peers.stage import OURS, OURS_WHOLE, STOCK, Failed, Run, running
from tests.benchmarks.stage import Stage
from tests.conftest import ROOT


class _Cleared:
    def clear(self) -> None:
        """Nothing was left."""


def _breaking(times: int, *contenders: str) -> Callable[..., dict[str, float]]:
    broken = iter(range(times))

    def measure(_stage: Any, who: contest.Contender) -> dict[str, float]:
        if who.label in contenders and next(broken, None) is not None:
            raise OSError("gone\naway")
        return {"messages/s": 2.0}

    return measure


@pytest.mark.parametrize(("times", "ours"), [(1, "ours: 2 (2 to 2)"), (9, "-")])
def test_a_round_that_breaks_loses_no_other_figure_and_is_said(times: int, ours: str) -> None:
    claim = contest.Claim("drain", "no-ops", _breaking(times, "ours"), (contest.Pair(),))
    outcome = contest.play(claim, cast("Any", _Cleared()), 3)
    (line,) = outcome.lines
    assert (line.ours, line.other) == (ours, "stock: 2 (2 to 2)")
    assert outcome.failed == ("ours: OSError: gone away",) * min(times, 2)
    told = report.as_json([outcome], {}, "", 3)
    assert "| failed | ours: OSError: gone away |" in page.page(told, PEERS, STRUCK, "", "p.svg")


def test_of_a_pair_that_broke_on_both_sides_there_is_no_line_and_the_others_have_theirs() -> None:
    pairs = (contest.Pair(), contest.Pair(other=contest.HUEY))
    claim = contest.Claim("drain", "no-ops", _breaking(9, "ours", "huey"), pairs)
    (line,) = contest.play(claim, cast("Any", _Cleared()), 3).lines
    assert (line.ours, line.other) == ("-", "stock: 2 (2 to 2)")


def test_what_a_measurement_left_meets_no_other_though_it_could_not_be_removed() -> None:
    stage = Stage("redis://127.0.0.1:1/0", own_server=False)
    stage.client = redis.Redis(port=1, retry=Retry(NoBackoff(), 0))
    before = stage.namespace
    with pytest.raises(redis.ConnectionError):
        stage.clear()
    assert stage.namespace != before


def test_a_line_without_a_contender_that_breaks_says_so_behind_what_it_found() -> None:
    def work() -> None:
        os.write(1, "1 µs a job".encode())
        raise OSError("gone")

    assert report.said_by(work) == (["1 µs a job", "failed: OSError: gone"], False)


@pytest.mark.parametrize(
    ("error", "surprised", "words"),
    [(Failed("no workers"), False, "no workers"), (ValueError("not JSON"), True, "ValueError: not JSON")],
)
def test_a_peers_failed_round_leaves_it_its_good_ones(
    error: Exception, surprised: bool, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers_main, "running", lambda contender, url, folder: nullcontext(contender))
    turns = iter((None, error, None, error, error, error))

    def measure(run: Any) -> dict[str, float]:
        if run is OURS and (broken := next(turns)) is not None:
            raise broken
        return {"send": 3.0}

    found = peers_main._play(Measure("send", "", "", cast("Any", measure)), [OURS, STOCK], "", tmp_path, 9)
    assert found.cells([OURS, STOCK]) == {OURS.label: {"send": [3.0] * 2}, STOCK.label: {"send": [3.0] * 9}}
    assert found.failed() == {OURS.label: f"2 rounds failed: {words}"}
    assert found.surprised == surprised
    peers = PEERS | {"failed": {"idle": {"dramatiq": "1 round failed: it broke"}}}
    assert "p50 400 (300 to 500); 1 round failed: it broke |" in page.page(BENCH, peers, STRUCK, "", "p.svg")


@pytest.mark.parametrize(
    ("does", "absent"),
    [
        ("import dramatiq_peer; dramatiq_peer.Peer()._actor('bench', 'noop')", {"fleet", "middleware", "pydantic"}),
        ("from tests.benchmarks.worker import broker_of; broker_of('stock', 'redis://', 'own')", {"middleware"}),
        ("import tests.benchmarks.worker, tests.benchmarks.huey_peer", {"middleware"}),
    ],
)
def test_a_process_of_another_holds_nothing_of_ours(does: str, absent: set[str]) -> None:
    ask = f"import sys; {does}; print(*{{name.partition('.')[0] for name in sys.modules}} & {absent})"
    environment = {**os.environ, "BENCH_KIND": "stock", "PYTHONPATH": f"{page.HERE / 'peers'}:{ROOT}"}
    said = subprocess.run([sys.executable, "-c", ask], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == ""


class _Greedy(Run):
    """Two workers, the first of which takes everything until the third time that something is sent."""

    def __init__(self) -> None:
        self.contender, self.sent = STOCK, 0

    def start(self, *arguments: object, **more: str) -> Any:
        """It starts by itself."""

    def ask(self, *arguments: Any, within: float = 0) -> Any:
        self.sent += arguments[3]

    def done(self) -> int:
        return self.sent

    def notes(self, what: str) -> list[str]:
        return ["11"] * self.sent if self.sent < 3 * 8 else ["11"] * 16 + ["12"] * 8


def test_workers_have_begun_once_each_process_was_seen_to_do_a_job() -> None:
    run = _Greedy()
    run.workers(2, 8)
    assert run.sent == 3 * 8


def test_ours_is_measured_with_its_whole_middleware_too_and_a_line_says_so() -> None:
    assert any(pair.ours.whole for pair in drain.CLAIM.compared)
    whole = broker_of("ours", "redis://127.0.0.1:1/0", "own", whole=True).middleware
    assert {type(one) for one in default_order()} <= {type(one) for one in whole}
    assert "ours, with its whole middleware" in {pair.ours.label for pair in drain.CLAIM.compared}


def test_the_whole_middleware_counts_where_a_supervisors_workers_do(redis_url: str, tmp_path: Path) -> None:
    with running(OURS_WHOLE, redis_url, tmp_path) as run:
        metrics = Path(run.environment()["PROMETHEUS_MULTIPROC_DIR"])
        assert metrics.is_dir() and metrics.parent.name.startswith("fleet-boards-")
    assert not metrics.parent.exists()


def test_a_run_is_doubled_that_shares_its_slot_and_not_one_of_a_late_slot_just_before_the_next() -> None:
    assert doubled([10.0, 10.01, 11.0, 16.9, 17.0, 18.0], 1, by_clock=True) == 1
    assert doubled([60.1, 60.2, 120.1, 180.0], 60, by_clock=True) == 1


def test_of_schedulers_whose_slots_are_not_the_clocks_each_runs_its_own_and_every_slot_is_doubled() -> None:
    two = [second + phase for second in range(10, 14) for phase in (0.1, 0.9)]
    assert doubled(two, 1, by_clock=False) == 3
    assert doubled(two[::2], 1, by_clock=False) == 0
