"""`python -m tests.benchmarks.strike RUN.json --because "…"`: keeps a run's figures, and strikes those they replace.

RUN is what `make bench` or `make bench-peers` wrote by `--json`. It takes the place of the kept one in `results/`; each
figure that is another now, or is not measured any more, goes to `history.json` with its date and the reason; the page
is made anew. `history.json` holds a digest of what is kept, so that a run that was put there past this is found.

Not guaranteed: that the reason is a good one, or the same for each figure; edit it in `history.json` where it is not.
A run of some lines alone (`--only`) strikes all others: what is kept is one run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet.reasons import reason_says_something
from tests.benchmarks import page

Json = dict[str, Any]
_GONE = "not measured"
_SAID = "what it said"


def main() -> None:
    """Replace, strike, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.strike", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN.json", help="what a run wrote by --json")
    parser.add_argument("--because", required=True, metavar="…", help="why its figures are others")
    asked = parser.parse_args()
    if not reason_says_something(asked.because):
        parser.error(f"--because {asked.because!r} gives no reason: what changed, the code, the machine or the load?")
    found = replace(json.loads(asked.run.read_text()), asked.because, page.HERE)
    gone = sum(one["now"] == _GONE for one in found)
    print(f"{len(found)} figures struck, {gone} of them since this run did not measure them.")
    page.main([])


def replace(run: Json, because: str, folder: Path) -> list[Json]:
    """Keep a run in place of the one of its kind in a folder like this one; what was struck."""
    name = "bench.json" if "claims" in run else "peers.json"
    kept, history = folder / "results" / name, folder / "history.json"
    known = json.loads(history.read_text())
    fresh = struck(json.loads(kept.read_text()), run, because)
    known["struck"] += fresh
    known["kept"][name] = digest(run)
    kept.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")
    history.write_text(written(known))
    return fresh


def struck(before: Json, now: Json, because: str) -> list[Json]:
    """A struck line for each figure of a run that another run does not have, or has otherwise.

    A line that said something in words, and has contenders now, is replaced by all their figures.
    """
    fresh = dict(figures(now))
    for line, figure in figures(before):
        others = [f"{what} {value}" for (name, what), value in fresh.items() if name == line and value]
        if figure == _SAID and (line, _SAID) not in fresh and others:
            fresh[line, _SAID] = "; ".join(others)
    return [
        {
            "line": line,
            "figure": figure,
            "was": was,
            "measured": before["measured"],
            "now": fresh.get((line, figure), _GONE),
            "reason": because,
        }
        for (line, figure), was in figures(before).items()
        if fresh.get((line, figure)) != was
    ]


def figures(run: Json) -> Mapping[tuple[str, str], str]:
    """A run's figures as the page has them, by line and by what and whose it is."""
    found: dict[tuple[str, str], str] = {}
    for claim in run.get("claims", ()):
        for line in claim["lines"]:
            for side in (line["ours"], line["other"]):
                whose, _, figure = side.partition(": ")
                if figure:  # else it is "-": it failed, or does no such thing
                    found.setdefault((claim["name"], f"{line['figure']}, {whose}"), figure)
    for name, told in run.get("alone", {}).items():
        found[name, _SAID] = "; ".join(told["said"])
    for measure, cells in run.get("figures", {}).items():
        found |= {(f"{measure}, beside others", library): page.told(cell) for library, cell in cells.items()}
    return found


def digest(run: Json) -> str:
    """What tells a run's figures from another's."""
    told = [run["measured"], *sorted([*key, figure] for key, figure in figures(run).items())]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def written(history: Json) -> str:
    """The history as its file has it: a line a figure, so that who reads a change sees which."""
    lines = ",\n".join("  " + json.dumps(one, ensure_ascii=False) for one in history["struck"])
    return f'{{\n "kept": {json.dumps(history["kept"])},\n "struck": [\n{lines}\n ]\n}}\n'


if __name__ == "__main__":
    main()
