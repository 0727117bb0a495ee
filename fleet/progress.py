"""A job says how far it is; after a deadline the engine says so for it: "timed out after 340 of 1772".

What was published last holds, however deep in a job. `sweep` publishes by itself. Outside a job nothing happens.

Not guaranteed: that what was published is stored anywhere else. It is kept in this process and is lost with it; after a
hard budget the row says only what ended it.
"""

from __future__ import annotations

from fleet import deadline


def publish(done: int, of: int | None = None, unit: str = "") -> None:
    """`done` of `of` are through; `unit` names what ("rows", "pages"). Cheap enough for each row."""
    run = deadline.current_run()
    if run is not None:
        counted = f"after {done}" if of is None else f"after {done} of {of}"
        run.progress = f"{counted} {unit}" if unit else counted


def stage(doing: str) -> None:
    """What the job does, as the end of a sentence that begins "timed out": "while its text was read"."""
    run = deadline.current_run()
    if run is not None:
        run.progress = doing
