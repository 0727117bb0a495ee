"""`python -m tests.benchmarks.page RESULTS.json PEERS.json PAGE.md PLOT.svg`: docs/benchmarks.md and its plot.

RESULTS is what `make bench BENCH_ARGS="--json FILE"` wrote, PEERS what `make bench-peers` did; without arguments, the
ones kept in `results/`. Figures that a later run replaced stand in `history.json`, with the reason: a run is kept by
`python -m tests.benchmarks.strike`, which strikes them. Nothing is measured here.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.claims import NO_LINE, STATED
from tests.benchmarks.plot import Row, draw

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS, PEERS = HERE / "results" / "bench.json", HERE / "results" / "peers.json"
PAGE, PLOT = ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "benchmarks.svg"
_AGAINST = "dramatiq"
_NEVER = "not run again"
_OUGHT_NOT = (_NEVER, "doubled")
Json = dict[str, Any]


def page(bench: Json, peers: Json, history: Sequence[Json], better_at: str, plot: str) -> str:
    """The page as Markdown; `plot` is the plot's address as seen from it."""
    return "\n".join(
        [
            "# Benchmarks",
            "",
            "Made by `python -m tests.benchmarks.page` from the figures kept in `tests/benchmarks/results`, each with",
            "how it was measured; not edited by hand. Absolute figures do not travel to another machine; ratios do",
            "within one run.",
            "",
            f"![How many times better than stock Dramatiq, by measure and library]({plot})",
            "",
            *_own(bench),
            *_beside(peers),
            "## What each of them is better at",
            "",
            better_at.strip(),
            "",
            *_stated(bench),
            *_struck(history),
        ]
    )


def _own(bench: Json) -> Iterator[str]:
    yield "## Beside stock Dramatiq: `make bench`"
    yield ""
    yield f"Measured {bench['measured']}; {bench['machine']}; {bench['versions']}. Rounds: {_rounds(bench)};"
    yield f"of more than one, medians, with the lowest and the highest in brackets. {bench['settings']}."
    yield ""
    yield "| line | load | figure | ours | beside | ours is better | aim |"
    yield "|---|---|---|---|---|---|---|"
    for claim in bench["claims"]:
        named = f"**{claim['name']}**: {claim['work']} | {claim['load']}"
        for line in claim["lines"]:
            ratio = "-" if line["ratio"] is None else f"{line['ratio']:,.3g}×"
            aim = ", ".join(filter(None, (line["aim"], line["verdict"])))
            yield f"| {named} | {line['figure']} | {line['ours']} | {line['other']} | {ratio} | {aim} |"
            named = " | "
        for words in claim.get("failed", ()):
            yield f"| {named} | failed | {_escaped(words)} | | | |"
            named = " | "
    yield ""
    yield "Lines without a contender:"
    yield ""
    for name, told in bench["alone"].items():
        yield f"- **{name}** ({told['work']}; load {told['load']}): {'; '.join(map(_escaped, told['said']))}"
    yield ""


def _beside(peers: Json) -> Iterator[str]:
    machine = ", ".join(f"{name} {value}" for name, value in peers["machine"].items())
    yield "## Beside six others: `make bench-peers`"
    yield ""
    yield f"Measured {peers['measured']}; {machine}. Rounds: {_rounds(peers)}. {_settings(peers)}"
    yield ""
    for measure, cells in peers["figures"].items():
        work, unit, _ = peers["works"][measure]
        load = f" (load {peers['loads'][measure]})" if "loads" in peers else ""
        yield f"**{measure}**: {work}{load}"
        yield ""
        yield f"| library | median (lowest to highest){', ' + unit if unit else ''} |"
        yield "|---|---|"
        for library, cell in cells.items():
            failed = peers.get("failed", {}).get(measure, {}).get(library)
            yield f"| {library} | {_escaped('; '.join(filter(None, (told(cell), failed))))} |"
        yield ""


def _rounds(run: Json) -> str:
    once = run.get("once", ()) if run["rounds"] != 1 else ()
    return f"{run['rounds']}, and one of {' and '.join(once)}" if once else str(run["rounds"])


def _settings(peers: Json) -> str:
    settings = peers.get("settings", "")
    if isinstance(settings, str):
        return f"{settings}."
    lines = [f"- **{library}**: {said}" for library, said in settings.items()]
    return "What is not a library's default:\n\n" + "\n".join(lines)


def told(cell: Mapping[str, list[float]] | str) -> str:
    """A cell of the peers' table as text."""
    if isinstance(cell, str):
        return cell
    parts = []
    for name, values in cell.items():
        spread = f" ({number(min(values))} to {number(max(values))})" if len(values) > 1 else ""
        parts.append(f"{name} {number(statistics.median(values))}{spread}")
    return "; ".join(parts)


def number(value: float) -> str:
    """Three digits that count, and no exponent."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _stated(bench: Json) -> Iterator[str]:
    kept = {*(claim["name"] for claim in bench["claims"]), *bench["alone"]}
    yield "## What README and docs say, and which line says it"
    yield ""
    yield "| claim | in | measured by |"
    yield "|---|---|---|"
    for one in STATED:
        where, _, what = one.line.rpartition(":")
        by = {
            "": "by hand, once; no line repeats it" if what == NO_LINE else _by_line(what, kept),
            "peers": f'`make bench-peers BENCH_ARGS="--only {what}"`',
            "make": f"`make {what}`",
            "module": f"`python -m {what}`",
            "test": f"[`{what}`](../{what})",
        }[where]
        address = one.file.removeprefix("docs/") if one.file.startswith("docs/") else f"../{one.file}"
        yield f"| {one.words} | [{one.file}]({address}) | {by} |"
    yield ""


def _by_line(name: str, kept: Collection[str]) -> str:
    return f'`make bench BENCH_ARGS="--only {name}"`{"" if name in kept else ", which the kept run lacks"}'


def _struck(history: Sequence[Json]) -> Iterator[str]:
    yield "## Figures that were replaced"
    yield ""
    yield 'A run is kept by `python -m tests.benchmarks.strike RUN.json --because "…"`, which strikes each figure that'
    yield "is another now, or that it did not measure. A test fails where the kept figures came there otherwise."
    yield ""
    yield "| line | figure | was | is | why |"
    yield "|---|---|---|---|---|"
    for one in history:
        was = f"~~{one['was']}~~ ({one['measured']})"
        yield f"| {' | '.join(map(_escaped, (one['line'], one['figure'], was, one['now'], one['reason'])))} |"
    yield ""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def rows(peers: Json) -> list[Row]:
    """What the plot shows: of each measure its first figure, as a ratio to stock Dramatiq's in the same run.

    Counts of what ought not to be are said in words, none of them too. Who has not run everything again has no time
    until it had: it is in the words, and has no dot.
    """
    found = []
    for measure, cells in peers["figures"].items():
        _, _, higher_is_better = peers["works"][measure]
        own = {name: cell for name, cell in cells.items() if "," not in name}
        seen = {name: _medians(cell) for name, cell in own.items() if not isinstance(cell, str)}
        medians = {name: _drawn(values) for name, values in seen.items() if not values.get(_NEVER)}
        against = medians.get(_AGAINST)
        if not against:
            ratios = {}
        else:
            ratios = {
                name: value / against if higher_is_better else against / value
                for name, value in medians.items()
                if value
            }
        figure = next((name for values in seen.values() for name in values if name not in _OUGHT_NOT), "")
        words = [*_counted(seen), *_without([name for name, cell in own.items() if isinstance(cell, str)])]
        if ratios or words:
            found.append(Row(f"{measure}, {figure}".rstrip(", "), ratios, "; ".join(words)))
    return found


def _medians(cell: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in cell.items()}


def _drawn(medians: Mapping[str, float]) -> float | None:
    return next((value for name, value in medians.items() if name not in _OUGHT_NOT), None)


def _counted(seen: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """How often happened what ought not, and with whom."""
    for count in _OUGHT_NOT:
        by_value: dict[float, list[str]] = {}
        for name, values in seen.items():
            if count in values:
                by_value.setdefault(values[count], []).append(name)
        yield from (f"{count} {number(value)}: {', '.join(by_value[value])}" for value in sorted(by_value))


def _without(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield f"no figure: {', '.join(names)}"


def main(arguments: Sequence[str]) -> None:
    """Write the page and its plot."""
    if len(arguments) not in (0, 4):
        raise SystemExit(__doc__)
    given = [Path(one).resolve() for one in arguments] or [RESULTS, PEERS, PAGE, PLOT]
    bench, peers = (json.loads(path.read_text()) for path in given[:2])
    history = json.loads((HERE / "history.json").read_text())["struck"]
    better_at = (HERE / "peers" / "better_at.md").read_text()
    plot = os.path.relpath(given[3], given[2].parent)
    given[2].write_text(page(bench, peers, history, better_at, plot))
    given[3].write_text(draw(f"Nightshift and others beside stock Dramatiq, {peers['measured']}", rows(peers)))


if __name__ == "__main__":
    main(sys.argv[1:])
