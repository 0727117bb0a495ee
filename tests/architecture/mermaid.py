"""A small reader of the mermaid that the pages use: flowcharts and state diagrams.

Says which line a renderer would stumble over. Not guaranteed: that a renderer takes everything that this takes.
"""

from __future__ import annotations

import re

_ID = r"[A-Za-z][\w]*"
_LABEL = r"(?:\[\(\"[^\"]+\"\)\]|\[\"[^\"]+\"\]|\[[^\[\]\"]+\]|\(\[?[^()\[\]]+\]?\)|\{\"?[^{}\"]+\"?\})"
_NODE = rf"{_ID}(?:{_LABEL})?"
_NODES = rf"{_NODE}(?:\s*&\s*{_NODE})*"
_ARROW = r"(?:-->\|[^|]+\||--\s+(?:\"[^\"]+\"|[^-\"|]+)\s+-->|-\.\s+[^.]+\s+\.->?|-\.->?|-->|---|==>|-\.-)"
_EDGE = re.compile(rf"{_NODES}(?:\s*{_ARROW}\s*{_NODES})*")
_STATE = rf"(?:\[\*\]|{_ID})"
_MOVE = re.compile(rf"{_STATE}\s*-->\s*{_STATE}(?:\s*:\s*\S.*)?")
_STATES = re.compile(rf"direction (?:LR|RL|TB|BT)|state \"[^\"]+\" as {_ID}|{_ID}\s*:\s*\S.*|state {_ID} \{{|\}}")


def faults(text: str) -> list[str]:
    """What is wrong with a diagram, a line each; empty if nothing."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("%%")]
    if not lines:
        return ["an empty diagram"]
    if re.fullmatch(r"(flowchart|graph) (LR|RL|TB|TD|BT)", lines[0]):
        return _flowchart(lines[1:])
    if lines[0] == "stateDiagram-v2":
        return [f"no state and no move: {line}" for line in lines[1:] if not (_MOVE.fullmatch(line) or _is_state(line))]
    return [f"an unknown kind of diagram: {lines[0]}"]


def _is_state(line: str) -> bool:
    return bool(_STATES.fullmatch(line))


def _flowchart(lines: list[str]) -> list[str]:
    found, depth = [], 0
    for line in lines:
        if re.fullmatch(rf"subgraph {_ID}(?:\[\"?[^\[\]\"]+\"?\])?", line):
            depth += 1
        elif line == "end":
            depth -= 1
        elif not _EDGE.fullmatch(line):
            found.append(f"no node and no edge: {line}")
        if depth < 0:
            found.append("an end without its subgraph")
            depth = 0
    return [*found, *["a subgraph without its end"] * depth]
