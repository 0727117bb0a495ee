"""What a soak prints at its end: the invariants, the faults that were made, and what grew."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from books.night.report import Report
from tests.soak.growth import FEWEST_NIGHTS, Slope
from tests.soak.run import Outcome

_COLOURS = {"ok": "green", "red": "bold red", "not decided": "yellow"}
_ALWAYS_SAID = 0.05  # of a figure that no bound is stated for, what moves less than this share is left out


def show(outcome: Outcome, seed: int, console: Console) -> None:
    """Print it."""
    report = Report(seed, outcome.seconds, outcome.lines)
    console.print(report.table(f"A soak of seed {seed}: {outcome.nights} nights in {outcome.seconds / 60:.1f} min"))
    made = outcome.faults
    told = ", ".join(f"{name.replace('_', ' ')} {times}" for name, times in sorted(made.items()))
    console.print(f"{made.total()} faults: {told}", soft_wrap=True)
    for name, why in sorted(outcome.not_made.items()):
        console.print(f"  not made once or more, {name.replace('_', ' ')}: {why}", soft_wrap=True, highlight=False)
    again = ", ".join(f"{kind} {times}" for kind, times in outcome.started_again.items()) or "nothing"
    console.print(f"Started again: {again}")
    console.print(_growth(outcome))
    console.print(_in_a_line(outcome), soft_wrap=True)


def _in_a_line(outcome: Outcome) -> str:
    red, unsure, judged = outcome.red, outcome.undecided, {one.verdict for one in outcome.slopes}
    held = ", nothing grew beyond its bound" if "ok" in judged and "not decided" not in judged else ""
    told = f"[bold red]Broken: {'; '.join(red)}.[/]" if red else f"[green]Nothing broken{held}.[/]"
    return told + (f" [yellow]Not decided, {len(unsure)}: {'; '.join(unsure)}.[/]" if unsure else "")


def write(outcome: Outcome, seed: int, path: Path) -> None:
    """The same as JSON."""
    content = {
        "seed": seed,
        "nights": outcome.nights,
        "seconds": outcome.seconds,
        "lines": [asdict(line) for line in outcome.lines],
        "growth": [{**asdict(one), "bound": one.bound, "verdict": one.verdict} for one in outcome.slopes],
        "dealt": dict(outcome.dealt),
        "faults": dict(outcome.faults),
        "not_made": outcome.not_made,
        "started_again": outcome.started_again,
        "red": outcome.red,
        "not_decided": outcome.undecided,
    }
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _growth(outcome: Outcome) -> Table:
    few = "" if outcome.nights > FEWEST_NIGHTS else f" (no slopes: they want {FEWEST_NIGHTS + 1} nights)"
    table = Table(title=f"What grew: the median of a night, the first of which is left out{few}")
    for column in ("", "of", "first", "last", "an hour", "bound", "verdict"):
        table.add_column(column, justify="right" if column in ("first", "last", "an hour", "bound") else "left")
    family = ""
    for one in outcome.slopes:
        if not _worth_a_line(one):
            continue
        hour = "-" if one.an_hour is None else f"{one.an_hour:+,.2f} ± {one.error:,.2f}"
        bound = "" if one.bound is None else f"{one.bound:g}"
        verdict = f"[{_COLOURS[one.verdict]}]{one.verdict}[/]" if one.verdict else ""
        head = one.family if one.family != family else ""
        family = one.family
        table.add_row(head, one.kind, f"{one.first:,.1f}", f"{one.last:,.1f}", hour, bound, verdict)
    return table


def _worth_a_line(one: Slope) -> bool:
    return one.bound is not None or abs(one.last - one.first) > _ALWAYS_SAID * max(1.0, abs(one.first))
