"""A timeline for a terminal: a line an entry, a character a slice of the night, and in words what stands out.

Not guaranteed: that what is shorter than a slice is seen where something else fills it; the remarks name what went
wrong. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from fleet.timeline.model import KINDS, Kind, Row, Segment, Step, Timeline

_SIGNS: dict[Kind, tuple[str, str]] = {
    "scheduled": ("·", "dim"),
    "held": ("░", "yellow"),
    "released": ("-", "green"),
    "paused": ("=", "cyan"),
    "coalesced": ("~", "dim"),
    "expired": ("×", "red"),
    "ran": ("█", "blue"),
}
_BAD, _OVERLAP = ("▓", "bold red"), ("#", "bold red")
_MOST_REMARKS, _MOST_CHANGES = 20, 12  # the latest ones


def text(timeline: Timeline, width: int = 100) -> RenderableType:
    """The lines, `width` characters wide at most, for rich to print."""
    names = [track.entry for row in timeline.rows for track in row.tracks]
    column = min(max([len(name) for name in names] or [0]) + 2, max(12, width // 3))
    cells = max(24, width - column)
    lines = [Text(timeline.title, style="bold"), _hours(timeline, column, cells)]
    for row in timeline.rows:
        lines += _row(timeline, row, column, cells)
    lines += [Text(""), _legend()]
    lines += list(_remarks(timeline))
    return Group(*lines)


def _hours(timeline: Timeline, column: int, cells: int) -> Text:
    line = [" "] * (column + cells + 5)
    every = 3 if cells >= 48 else 6
    for hour in timeline.night.hours():
        if hour.astimezone(timeline.night.zone).hour % every == 0:
            at = column + min(cells - 1, round(timeline.night.share(hour) * cells))
            line[at : at + 2] = f"{hour.astimezone(timeline.night.zone):%H}"
    return Text("".join(line).rstrip()[: column + cells], style="dim")


def _row(timeline: Timeline, row: Row, column: int, cells: int) -> Iterator[Text]:
    yield Text(row.lane, style="bold")
    for track in row.tracks:
        line = Text(f" {_shortened(track.entry, column - 2)}".ljust(column))
        for sign, style in _cells(timeline, track.entry, track.segments, cells):
            line.append(sign, style)
        yield line
        if track.steps:
            yield _allowed(timeline, track.steps, column, cells)
    for one in row.often:
        ran = f"{one.ran:,} of " if timeline.now is not None else ""
        yield Text(f" {one.entry}: {ran}{one.slots:,}" + (f", {one.bad:,} bad" if one.bad else ""), style="dim")


def _cells(timeline: Timeline, entry: str, segments: tuple[Segment, ...], cells: int) -> Iterator[tuple[str, str]]:
    night = timeline.night
    signs: list[tuple[str, str]] = [(" ", "")] * cells
    rank = [-1] * cells
    for segment in segments:
        known = _BAD if segment.kind == "ran" and segment.bad else _SIGNS[segment.kind]
        height = KINDS.index(segment.kind) + 10 * segment.bad
        for at in _covered(night.share(segment.begins), night.share(segment.ends), cells):
            if height >= rank[at]:
                signs[at], rank[at] = known, height
    for one in timeline.overlaps:
        if entry in (one.first, one.second):
            for at in _covered(night.share(one.begins), night.share(one.ends), cells):
                signs[at] = _OVERLAP
    if timeline.now is not None and night.begins <= timeline.now < night.ends:
        at = int(night.share(timeline.now) * cells)
        if signs[at][0] == " ":
            signs[at] = ("│", "red")
    yield from signs


def _allowed(timeline: Timeline, steps: tuple[Step, ...], column: int, cells: int) -> Text:
    """How many chains were allowed, a digit a slice; `+` for ten and more."""
    line = [" "] * cells
    for step in steps:
        for at in _covered(timeline.night.share(step.begins), timeline.night.share(step.ends), cells):
            line[at] = str(step.places) if step.places < 10 else "+"
    return Text(" allowed".ljust(column) + "".join(line), style="green")


def _covered(first: float, last: float, cells: int) -> range:
    begins = min(cells - 1, int(first * cells))
    return range(begins, max(begins + 1, min(cells, int(last * cells))))


def _legend() -> Text:
    line = Text()
    for kind in KINDS:
        line.append(_SIGNS[kind][0], _SIGNS[kind][1]).append(f" {kind}  ")
    line.append(*_BAD).append(" failed or lost  ")
    return line.append(*_OVERLAP).append(" overlap")


def _remarks(timeline: Timeline) -> Iterator[Text]:
    for said, style, most in ((timeline.remarks(), "red", _MOST_REMARKS), (timeline.changes(), "", _MOST_CHANGES)):
        if len(said) > most:
            yield Text(f"{len(said) - most} more before these", style=style)
        for line in said[-most:]:
            yield Text(line, style=style)


def _shortened(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
