"""A night as a timeline of 24 hours, a row a lane: built by a pure function, drawn as SVG, printed as text."""

from __future__ import annotations

from fleet.timeline.building import Known, Recorded, timeline
from fleet.timeline.drawing import STYLE, svg
from fleet.timeline.model import KINDS, Load, Night, Often, Row, Segment, Step, Timeline, Track
from fleet.timeline.printed import text

__all__ = [
    "KINDS",
    "STYLE",
    "Known",
    "Load",
    "Night",
    "Often",
    "Recorded",
    "Row",
    "Segment",
    "Step",
    "Timeline",
    "Track",
    "svg",
    "text",
    "timeline",
]
