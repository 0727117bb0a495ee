"""A timeline as SVG and as text: for any width, without a script, and whatever names it holds."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from fleet.timeline import Load, Recorded, Segment, Timeline, Track, svg, text, timeline
from tests.fleet.nights import (
    DAY,
    MINUTE,
    NAME,
    NIGHT,
    at,
    fired,
    of_one_entry,
    ran,
    sample,
)

PAGE = Path(__file__).parents[2] / "docs" / "night-timeline.svg"


def test_the_drawing_fits_any_width_has_a_title_a_description_and_no_script() -> None:
    drawn = svg(sample())
    root = ElementTree.fromstring(drawn)
    assert root.get("width") == "100%" and root.get("viewBox") is None
    labels = str(root.get("aria-labelledby")).split()
    texts = {one.get("id"): one.text or "" for one in root}
    assert texts[labels[0]].startswith("Mon 02 Mar")
    assert "overlap in lane transaction_sync" in texts[labels[1]] and "0 of 4, hot" in texts[labels[1]]
    assert "<script" not in drawn and "<style" not in drawn
    for one in root.iter():
        if one.tag.endswith("rect"):
            assert re.fullmatch(r"[\d.]+%", one.get("x", "0%")), "what lies along the time is in per cent"


def test_a_lanes_load_is_drawn_by_the_most_of_each_slice_of_the_night() -> None:
    loads = [Load(NIGHT.begins + n * MINUTE, 100 if n == 601 else 1, 0) for n in range(1440)]
    found = timeline([], Recorded(loads={"lane": loads}), NIGHT, at("02:00"))
    [points] = [
        one.get("points", "") for one in ElementTree.fromstring(svg(found)).iter() if one.get("class") == "runs"
    ]
    assert len(points.split()) == 242, "240 slices and the two corners of the area"
    assert min(float(point.split(",")[1]) for point in points.split()) == 4.0, "the one minute of a hundred is seen"


def test_as_a_file_the_drawing_brings_its_width_and_its_rules() -> None:
    root = ElementTree.fromstring(svg(sample(), width=960))
    assert str(root.get("viewBox")).startswith("0 0 960 ")
    assert any(one.tag.endswith("style") for one in root)


def test_a_name_out_of_a_message_can_break_neither_the_drawing_nor_the_print() -> None:
    evil = "</svg><script>[/red]\x00"
    track = Track(evil, (Segment("ran", NIGHT.begins, NIGHT.ends, evil, "failed"),))
    found = sample()
    found = replace(found, rows=(replace(found.rows[0], tracks=(track,)),))
    root = ElementTree.fromstring(svg(found))
    assert not any(one.tag.endswith("script") for one in root.iter())
    assert "[/red]" in printed(found)


def printed(found: Timeline, width: int = 100) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(text(found, width))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_printed_an_entry_is_a_line_and_what_stands_out_is_said_in_words() -> None:
    lines = printed(
        of_one_entry("03:30", fired(NAME, "03:10"), runs=[ran("n", "03:10", "03:15", 12, "failed")]), 64
    ).splitlines()
    assert [line.rstrip() for line in lines[:4]] == [
        "Mon 02 Mar – Tue 03 Mar 2026, Europe/Berlin",
        "               12    15    18    21    00     03    06    09   1",
        "lane",
        " nightly_audit                               ░▓",
    ]
    assert lines[-1].rstrip() == "03:15 nightly_audit failed: attempt 1"


@pytest.mark.parametrize("width", [40, 60, 100, 180])
def test_printed_no_line_is_wider_than_asked(width: int) -> None:
    assert max(len(line) for line in printed(sample(), width).splitlines()) <= width


def test_the_drawing_in_the_docs_is_what_is_drawn() -> None:
    assert PAGE.read_text() == svg(sample(), width=960) + "\n", "python -m tests.fleet.nights docs/night-timeline.svg"


def test_nothing_at_all_is_a_timeline_too() -> None:
    empty = timeline([], Recorded(), NIGHT, datetime(2020, 1, 1, tzinfo=UTC))
    assert empty.rows == () and DAY.isoformat() == "2026-03-02"
    ElementTree.fromstring(svg(empty))
    assert "Europe/Berlin" in printed(empty)
