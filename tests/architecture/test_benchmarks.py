"""docs/benchmarks.md is what its figures make of it, and every figure that is claimed has its line."""

from __future__ import annotations

import copy
import importlib.util
import json
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.benchmark_runs import BENCH, PEERS, STRUCK
from tests.benchmarks import page, strike
from tests.benchmarks.__main__ import _LINES
from tests.benchmarks.claims import NO_LINE, STATED, Stated
from tests.benchmarks.peers.measures import MEASURES
from tests.conftest import ROOT

HISTORY = json.loads((page.HERE / "history.json").read_text())


def test_a_page_has_each_figure_with_its_machine_spread_and_aim_and_strikes_what_was_replaced() -> None:
    made = page.page(BENCH, PEERS, STRUCK, "- **huey** is quick.", "p.svg")
    assert "| **drain**: no-ops | 0.1 | messages/s | ours: 8 | stock: 4 | 2× | >= 5x, NOT MET |" in made
    assert "1 µs \\| a job" in made
    assert "| dramatiq | p50 400 (300 to 500) |" in made
    assert "| rq | no threads |" in made
    assert "- **celery**: late acknowledgement, since a ledger wants it" in made
    assert "- **huey** is quick." in made
    assert "| drain | messages/s | ~~7~~ (2025-12-31) | 8 | less work |" in made


def test_the_plot_shows_how_many_times_better_than_stock_each_is_whichever_way_is_better() -> None:
    assert [(row.label, dict(row.ratios), row.words) for row in page.rows(PEERS)] == [
        ("idle, p50", {"nightshift": 200.0, "dramatiq": 1.0}, "no figure: rq"),
        ("drain-8, drain", {"nightshift": 2.0, "dramatiq": 1.0, "huey": 1.5}, ""),
    ]


def lost(measure: str, **cells: Any) -> list[tuple[str, dict[str, float], str]]:
    peers = {"works": {measure: ["", "s", False]}, "figures": {measure: cells}}
    return [(row.label, dict(row.ratios), row.words) for row in page.rows(peers)]


def test_the_plot_says_in_words_who_never_ran_everything_again_and_gives_it_no_dot() -> None:
    back, never = {"seconds": [2.0], "not run again": [0.0]}, {"seconds": [90.0], "not run again": [50.0]}
    stock = {"seconds": [60.0], "not run again": [0.0]}
    assert lost("kill", nightshift=back, dramatiq=stock, rq=never, huey=never, saq="it broke") == [
        (
            "kill, seconds",
            {"nightshift": 30.0, "dramatiq": 1.0},
            "not run again 0: nightshift, dramatiq; not run again 50: rq, huey; no figure: saq",
        )
    ]
    words = "not run again 0: nightshift; not run again 50: dramatiq"
    assert lost("kill", nightshift=back, dramatiq=never) == [("kill, seconds", {}, words)]


def test_the_plot_draws_the_longest_gap_of_schedulers_and_says_also_that_none_was_doubled() -> None:
    ours, stock = {"doubled": [0.0], "longest gap, s": [4.0]}, {"doubled": [9.0], "longest gap, s": [1.0]}
    assert lost("schedulers", nightshift=ours, dramatiq=stock) == [
        (
            "schedulers, longest gap, s",
            {"nightshift": 0.25, "dramatiq": 1.0},
            "doubled 0: nightshift; doubled 9: dramatiq",
        )
    ]
    drawn = page.draw("a title", [page.Row("schedulers", {}, "doubled 0: <us>")])
    assert "doubled 0: &lt;us&gt;" in drawn


def test_the_plot_is_drawn_within_its_frame(tmp_path: Path) -> None:
    drawn = xml.etree.ElementTree.fromstring(page.draw("a <title>", page.rows(PEERS)))
    _, _, width, height = map(float, drawn.attrib["viewBox"].split())
    for circle in drawn.iter("{http://www.w3.org/2000/svg}circle"):
        assert 0 < float(circle.attrib["cx"]) < width
        assert 0 < float(circle.attrib["cy"]) < height


def test_the_page_says_what_was_measured_once_of_several_rounds() -> None:
    assert "Rounds: 3, and one of kill and schedulers;" in page.page(
        BENCH | {"once": ["kill", "schedulers"]}, PEERS, STRUCK, "", "p.svg"
    )
    assert "Rounds: 1." in page.page(BENCH, PEERS | {"once": ["kill"], "rounds": 1}, STRUCK, "", "p.svg")


def test_a_line_that_has_contenders_now_is_not_said_to_be_unmeasured() -> None:
    before = BENCH | {"claims": [], "alone": {"drain": {"work": "no-ops", "load": 0.1, "said": ["9 a second"]}}}
    (one,) = strike.struck(before, BENCH, "it stands beside stock now")
    assert (one["was"], one["now"]) == ("9 a second", "messages/s, ours 8; messages/s, stock 4")


def test_a_contender_that_failed_has_no_figure_that_a_later_run_could_strike() -> None:
    failed = copy.deepcopy(BENCH)
    failed["claims"][0]["lines"][0] |= {"ours": "-", "ratio": None}
    assert strike.struck(failed, BENCH, "it went through now") == []
    (one,) = strike.struck(BENCH, failed, "ours failed")
    assert (one["figure"], one["was"], one["now"]) == ("messages/s, ours", "8", "not measured")


def test_the_page_in_docs_is_made_from_the_figures_that_are_kept(tmp_path: Path) -> None:
    made = [tmp_path / "docs" / page.PAGE.name, tmp_path / "docs" / page.PLOT.name]
    made[0].parent.mkdir()
    page.main([str(page.RESULTS), str(page.PEERS), *map(str, made)])
    again = "run `python -m tests.benchmarks.page`"
    assert [path.read_text() for path in made] == [page.PAGE.read_text(), page.PLOT.read_text()], again


@pytest.mark.parametrize("one", STATED, ids=lambda one: f"{one.file}-{one.line}")
def test_what_is_claimed_stands_where_it_is_said_to_and_has_a_line(one: Stated) -> None:
    said = " ".join((ROOT / one.file).read_text().split())
    assert one.words in said, f"{one.file} no longer says so: change tests/benchmarks/claims.py with it"
    kind, _, name = one.line.rpartition(":")
    if kind == "test":
        assert (ROOT / name).exists()
    elif kind == "module":
        assert importlib.util.find_spec(name) is not None
    elif kind == "make":
        assert f"\n{name}:" in (ROOT / "Makefile").read_text()
    else:
        known = {measure.name for measure in MEASURES} if kind == "peers" else {*_LINES, NO_LINE}
        assert name in known


def test_a_struck_figure_says_what_replaced_it_and_why() -> None:
    for one in HISTORY["struck"]:
        assert all(one[name] for name in ("line", "figure", "was", "measured", "now", "reason")), one


@pytest.mark.parametrize("path", [page.RESULTS, page.PEERS], ids=lambda path: path.name)
def test_no_run_is_kept_that_struck_nothing_of_the_one_before(path: Path) -> None:
    again = f'put {path.name} back, and keep the run by `python -m tests.benchmarks.strike RUN.json --because "…"`'
    assert strike.digest(json.loads(path.read_text())) == HISTORY["kept"][path.name], again


def test_a_run_that_replaces_another_strikes_what_changed_or_is_gone_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    for name, run in (("bench.json", BENCH), ("peers.json", PEERS)):
        (tmp_path / "results" / name).write_text(json.dumps(run))
    (tmp_path / "history.json").write_text(json.dumps({"kept": {}, "struck": STRUCK}))
    bench = copy.deepcopy(BENCH) | {"measured": "2026-02-03", "alone": {}}
    bench["claims"][0]["lines"][0] |= {"ours": "ours: 9", "ratio": 2.25}
    assert len(strike.replace(bench, "less work a message", tmp_path)) == 2
    peers = copy.deepcopy(PEERS)
    peers["figures"]["idle"]["rq"] = {"p50": [7.0]}
    assert len(strike.replace(peers, "it has threads now", tmp_path)) == 1
    history = json.loads((tmp_path / "history.json").read_text())
    assert [tuple(one.values()) for one in history["struck"]] == [
        tuple(STRUCK[0].values()),
        ("drain", "messages/s, ours", "8", "2026-01-02", "9", "less work a message"),
        ("board", "what it said", "1 µs | a job", "2026-01-02", "not measured", "less work a message"),
        ("idle, beside others", "rq", "no threads", "2026-01-02", "p50 7", "it has threads now"),
    ]
    for name, run in (("bench.json", bench), ("peers.json", peers)):
        assert json.loads((tmp_path / "results" / name).read_text()) == run
        assert history["kept"][name] == strike.digest(run)
    assert strike.digest(bench) != strike.digest(BENCH)
