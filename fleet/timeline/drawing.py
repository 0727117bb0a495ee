"""Draws a timeline as SVG: no script, readable on a phone, on a wide screen, in light and in dark.

What lies along the time is placed in per cent, text is not: so one drawing fits any width, and its letters keep their
size. Embedded in a page it takes the page's colour of text (`currentColor`) and needs the rules of `STYLE`, which a
page under a strict policy serves from its own style sheet; without them it is readable all the same, in one colour. As
a file it brings them along, with a paper of its own and a width.

Not guaranteed: that a title shows on a screen without a pointer; the remarks of the timeline say the same in words.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from xml.etree.ElementTree import Element, SubElement, tostring

from fleet.timeline.model import KINDS, Load, Row, Segment, Step, Timeline, Track

STYLE = """
.night { color-scheme: light dark; font-family: system-ui, sans-serif; font-size: 12px;
  --ran: #2563a8; --bad: #c02626; --held: #b45f06; --free: #2e7d4f; --paper: #ffffff; --ink: #1b2430; }
@media (prefers-color-scheme: dark) { .night { --ran: #6ea8e8; --bad: #ff7b72; --held: #e3a24f; --free: #6cc28c;
  --paper: #14181f; --ink: #e4e8ee; } }
.night .paper { fill: var(--paper); } .night.file { color: var(--ink); }
.night text { fill: currentColor; } .night .lane { font-weight: 600; }
.night .quiet { opacity: .7; font-size: 11px; } .night .tick { font-size: 10px; opacity: .75; }
.night .grid { stroke: currentColor; stroke-opacity: .14; } .night .edge { stroke: currentColor; stroke-opacity: .35; }
.night .ran { fill: var(--ran); fill-opacity: 1; } .night .bad { fill: var(--bad); fill-opacity: 1; }
.night .expired { fill: var(--bad); fill-opacity: .25; stroke: var(--bad); stroke-dasharray: 2 2; }
.night .held { fill: var(--held); fill-opacity: .45; stroke: none; }
.night .released { fill: var(--free); fill-opacity: .3; stroke: none; }
.night .scheduled { fill: currentColor; fill-opacity: .1; stroke: currentColor; stroke-opacity: .7;
  stroke-dasharray: 4 3; }
.night .coalesced { fill: currentColor; fill-opacity: .45; stroke: none; }
.night .paused { fill: currentColor; fill-opacity: .14; stroke: currentColor; stroke-opacity: .5; }
.night .allowed { fill: var(--free); fill-opacity: .75; } .night .none-allowed { fill: var(--held); fill-opacity: .8; }
.night .overlap { fill: var(--bad); fill-opacity: .22; stroke: var(--bad); stroke-width: 1.5; }
.night .now { stroke: var(--bad); stroke-width: 2; } .night .now-told { fill: var(--bad); font-weight: 600; }
.night .waits { fill: none; stroke: var(--held); } .night .runs { fill: var(--ran); fill-opacity: .22; stroke: none; }
"""
"""The rules of a drawing, all under `.night`."""

_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HEAD, _LANE, _LABEL, _BAR, _ALLOWED, _FOOT = 34, 26, 15, 11, 22, 56
_POINTS = 240
_PLAIN = {  # what each is drawn with where the rules are missing
    "ran": {"fill": "currentColor"},
    "expired": {"fill": "none", "stroke": "currentColor", "stroke-dasharray": "2 2"},
    "held": {"fill": "currentColor", "fill-opacity": ".3"},
    "released": {"fill": "currentColor", "fill-opacity": ".15"},
    "scheduled": {"fill": "none", "stroke": "currentColor", "stroke-dasharray": "4 3"},
    "coalesced": {"fill": "currentColor", "fill-opacity": ".45"},
    "paused": {"fill": "none", "stroke": "currentColor", "stroke-opacity": ".5"},
}


@dataclass
class _Drawing:
    """A drawing under way: `at` is how far down it has come, `tops` where each entry's bar lies."""

    timeline: Timeline
    root: Element
    at: float = _HEAD
    tops: dict[str, float] = field(default_factory=dict)

    def x(self, instant: datetime) -> str:
        return _percent(self.timeline.night.share(instant))

    def wide(self, begins: datetime, ends: datetime) -> str:
        return _percent(max(0.0012, self.timeline.night.share(ends) - self.timeline.night.share(begins)))


def svg(timeline: Timeline, *, width: int | None = None) -> str:
    """The drawing as text; with a `width` in pixels as a file of its own, else to be embedded in a page's own width."""
    height = _height(timeline)
    mark = hashlib.sha256(timeline.title.encode()).hexdigest()[:8]
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "class": "night"})
    root.set("aria-labelledby", f"night-{mark}-title night-{mark}-says")
    root.attrib.update({"font-size": "12", "font-family": "sans-serif"})
    root.set("width", "100%" if width is None else str(width))
    root.set("height", f"{height:g}")
    SubElement(root, "title", id=f"night-{mark}-title").text = timeline.title
    says = SubElement(root, "desc", id=f"night-{mark}-says")
    said = timeline.remarks() or ["No heavy work overlaps, and nothing went wrong"]
    says.text = ". ".join([*said, *timeline.changes()]) + "."
    if width is not None:
        root.set("viewBox", f"0 0 {width} {height:g}")
        root.set("class", "night file")
        SubElement(root, "style").text = STYLE
        SubElement(root, "rect", {"class": "paper", "width": "100%", "height": "100%", "fill": "none"})
    drawing = _Drawing(timeline, root)
    _text(root, "0.5%", 13, timeline.title, "lane")
    _hours(drawing, height - _FOOT)
    for row in timeline.rows:
        _row(drawing, row)
    _overlaps(drawing)
    _now(drawing, height - _FOOT)
    _legend(drawing, height - _FOOT + 28)
    # A name out of a message can hold what no XML may.
    return _NO_XML.sub("�", tostring(root, encoding="unicode"))


def _height(timeline: Timeline) -> float:
    tracks = [track for row in timeline.rows for track in row.tracks]
    often = sum(len(row.often) for row in timeline.rows)
    allowed = sum(_ALLOWED for track in tracks if track.steps)
    return _HEAD + len(timeline.rows) * _LANE + often * _LABEL + len(tracks) * (_LABEL + _BAR + 3) + allowed + _FOOT


def _hours(drawing: _Drawing, bottom: float) -> None:
    night = drawing.timeline.night
    for hour in night.hours():
        every_third = hour.astimezone(night.zone).hour % 3 == 0
        x = drawing.x(hour)
        SubElement(drawing.root, "line", {"class": "grid" if not every_third else "edge", "x1": x, "x2": x})
        drawing.root[-1].attrib.update({"y1": f"{_HEAD - 4:g}", "y2": f"{bottom:g}", "stroke": "currentColor"})
        drawing.root[-1].set("stroke-opacity", ".35" if every_third else ".14")
        share = night.share(hour)
        if every_third:
            anchor = "start" if share < 0.01 else "end" if share > 0.99 else "middle"
            _text(drawing.root, x, _HEAD - 8, f"{hour.astimezone(night.zone):%H}", "tick", anchor)


def _row(drawing: _Drawing, row: Row) -> None:
    root, top = drawing.root, drawing.at
    SubElement(root, "line", {"class": "edge", "x1": "0", "x2": "100%", "y1": f"{top:g}", "y2": f"{top:g}"})
    root[-1].attrib.update({"stroke": "currentColor", "stroke-opacity": ".35"})
    _loads(drawing, row, top)
    _text(root, "0.5%", top + 17, row.lane, "lane")
    drawing.at += _LANE
    for track in row.tracks:
        _track(drawing, track)
    for one in row.often:
        ran = f"ran {one.ran:,} of {one.slots:,}" if drawing.timeline.now is not None else f"{one.slots:,} slots"
        bad = f", {one.bad:,} went wrong" if one.bad else ""
        _text(root, "0.5%", drawing.at + 10, f"{one.entry}: {ran}{bad}", "quiet")
        drawing.at += _LABEL


def _loads(drawing: _Drawing, row: Row, top: float) -> None:
    """What ran in the lane, as an area, and what waited, as a line: each up to its own most."""
    loads = _thinned(row.loads, drawing.timeline)
    if len(loads) < 2:
        return
    at = [drawing.timeline.night.share(load.at) * 1000 for load in loads]
    box = {"x": "0", "y": f"{top + 2:g}", "width": "100%", "height": f"{_LANE - 4}"}
    inner = SubElement(drawing.root, "svg", {**box, "viewBox": "0 0 1000 100", "preserveAspectRatio": "none"})
    runs, waits = ([load.in_flight for load in loads], [load.ready for load in loads])
    SubElement(inner, "title").text = f"{row.lane}: up to {max(runs):,} ran at once, up to {max(waits):,} waited"
    for name, values in (("runs", runs), ("waits", waits)):
        most = max(values) or 1
        points = [f"{x:.1f},{100 - 96 * value / most:.1f}" for x, value in zip(at, values, strict=True)]
        if name == "runs":
            points = [f"{at[0]:.1f},100", *points, f"{at[-1]:.1f},100"]
        line = SubElement(inner, "polygon" if name == "runs" else "polyline", {"class": name})
        line.attrib.update({"points": " ".join(points), "vector-effect": "non-scaling-stroke"})
        line.attrib.update(
            {"fill": "currentColor", "fill-opacity": ".15"}
            if name == "runs"
            else {"fill": "none", "stroke": "currentColor", "stroke-opacity": ".5"}
        )


def _thinned(loads: Iterable[Load], timeline: Timeline) -> list[Load]:
    """Of each slice of the night the most that ran and the most that waited: a point a minute is more than is seen."""
    slices: dict[int, Load] = {}
    for load in loads:
        at = int(timeline.night.share(load.at) * _POINTS)
        seen = slices.get(at, load)
        slices[at] = Load(seen.at, max(seen.in_flight, load.in_flight), max(seen.ready, load.ready))
    return list(slices.values())


def _track(drawing: _Drawing, track: Track) -> None:
    night, root = drawing.timeline.night, drawing.root
    first, last = night.share(track.segments[0].begins), night.share(track.segments[-1].ends)
    # Where a long name has room on a narrow screen: to the right of an early bar, to the left of a late one.
    middle = (first + last) / 2
    at, anchor = (first, "start") if first < 0.35 else (last, "end") if last > 0.65 else (middle, "middle")
    _text(root, _percent(min(0.995, max(0.005, at))), drawing.at + 11, track.entry, "entry", anchor)
    top = drawing.at + _LABEL
    drawing.tops[track.entry] = top
    for segment in track.segments:
        _bar(drawing, track.entry, segment, top)
    drawing.at = top + _BAR + 3
    if track.steps:
        most = max(track.cap, *(step.places for step in track.steps), 1)
        for step in track.steps:
            _step(drawing, step, most)
        drawing.at += _ALLOWED


def _bar(drawing: _Drawing, entry: str, segment: Segment, top: float) -> None:
    attributes = {"class": "bad" if segment.kind == "ran" and segment.bad else segment.kind, **_PLAIN[segment.kind]}
    attributes |= {"x": drawing.x(segment.begins), "width": drawing.wide(segment.begins, segment.ends)}
    attributes |= {"y": f"{top:g}", "height": f"{_BAR}"}
    bar = SubElement(drawing.root, "rect", attributes)
    told = drawing.timeline.night.told
    how = segment.outcome or segment.kind
    times = f", {segment.count:,} times" if segment.count > 1 else ""
    note = f"; {segment.note}" if segment.note else ""
    SubElement(bar, "title").text = f"{entry} {told(segment.begins)}–{told(segment.ends)}: {how}{times}{note}"


def _step(drawing: _Drawing, step: Step, most: int) -> None:
    high = (_ALLOWED - 6) * step.places / most if step.places else 1.5
    box = {"x": drawing.x(step.begins), "width": drawing.wide(step.begins, step.ends)}
    box |= {"y": f"{drawing.at + _ALLOWED - 4 - high:.1f}", "height": f"{high:.1f}", "fill": "currentColor"}
    bar = SubElement(drawing.root, "rect", {"class": "allowed" if step.places else "none-allowed", **box})
    bar.set("fill-opacity", ".5")
    told = drawing.timeline.night.told
    SubElement(bar, "title").text = f"{told(step.begins)}–{told(step.ends)}: {step.told(most)}"


def _overlaps(drawing: _Drawing) -> None:
    told = drawing.timeline.night.told
    for one in drawing.timeline.overlaps:
        tops = [drawing.tops[name] for name in (one.first, one.second) if name in drawing.tops]
        if not tops:
            continue
        box = {"x": drawing.x(one.begins), "width": drawing.wide(one.begins, one.ends), "y": f"{min(tops) - 2:g}"}
        box |= {"height": f"{max(tops) - min(tops) + _BAR + 4:g}", "fill": "none", "stroke": "currentColor"}
        band = SubElement(drawing.root, "rect", {"class": "overlap", **box})
        SubElement(
            band, "title"
        ).text = f"{told(one.begins)}–{told(one.ends)}: {one.first} and {one.second} overlap {one.where}"


def _now(drawing: _Drawing, bottom: float) -> None:
    now, night = drawing.timeline.now, drawing.timeline.night
    if now is None or not night.begins <= now <= night.ends:
        return
    x, share = drawing.x(now), night.share(now)
    line = SubElement(drawing.root, "line", {"class": "now", "x1": x, "x2": x, "y1": f"{_HEAD - 4:g}"})
    line.attrib.update({"y2": f"{bottom + 4:g}", "stroke": "currentColor", "stroke-width": "2"})
    anchor = "start" if share < 0.1 else "end" if share > 0.9 else "middle"
    _text(drawing.root, x, bottom + 13, f"now {night.told(now)}", "now-told", anchor)


def _legend(drawing: _Drawing, top: float) -> None:
    for number, kind in enumerate((*KINDS, "overlap")):
        column, line = number % 4, number // 4
        y = top + line * 15
        box = {"x": f"{column * 25 + 0.5:g}%", "y": f"{y - 8:g}", "width": "12", "height": "9"}
        plain = _PLAIN.get(kind, {"fill": "none", "stroke": "currentColor"})
        SubElement(drawing.root, "rect", {"class": kind, **plain, **box})
        inner = SubElement(
            drawing.root, "svg", {"x": f"{column * 25 + 0.5:g}%", "y": f"{y - 10:g}", "overflow": "visible"}
        )
        _text(inner, "17", 10, kind, "quiet")


def _text(parent: Element, x: str, y: float, words: str, kind: str, anchor: str = "start") -> Element:
    given = {"class": kind, "x": x, "y": f"{y:g}", "text-anchor": anchor, "fill": "currentColor"}
    line = SubElement(parent, "text", given)
    line.text = words
    return line


def _percent(share: float) -> str:
    return f"{share * 100:.3f}%"
