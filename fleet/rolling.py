"""Whether a release can be rolled out beside the one that runs: what `fleet check --against MANIFEST` finds.

While a deploy rolls, both releases serve the same queues, fire the same schedule and use the same tables, and messages
of the old one wait and are delayed long after it is gone. A worker leaves what it cannot run to the other release
(`fleet.workers.other_release`), so that an actor or an argument may be added freely; what is left over when the old
release is gone must be something that the new one can run. Each finding says what to do instead.

Not seen: what an actor does with its arguments, what producers elsewhere still send, outbox rows that are not sent yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from fleet.manifest import Declared, Manifest, Parameter

Waiting = Callable[[str, str | None], int]
"""How many messages of a queue, of one actor or of all, wait, are delayed or run."""

_BY_PLACE = ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD")
_BY_NAME = ("KEYWORD_ONLY", "POSITIONAL_OR_KEYWORD")


def findings(running: Manifest, new: Manifest, root: Path, waiting: Waiting | None = None) -> Iterator[str]:
    """What speaks against rolling `new`, whose root this is, out beside `running`; `waiting` looks into the queues."""
    yield from _actors(running, new, waiting)
    yield from _queues(running, new, waiting)
    yield from _entries(new)
    yield from _migrations(running, new, root)


def _actors(running: Manifest, new: Manifest, waiting: Waiting | None) -> Iterator[str]:
    for name, before in running.actors.items():
        if name in new.actors:
            yield from (f"Actor {name!r}: {found}" for found in _parameters(before, new.actors[name]))
        elif waiting is None:
            yield (
                f"Actor {name!r} (queue {before.queue!r}) is gone, and messages of it may wait or be delayed: leave it "
                f"in for this release and send it no more; in the next, take it out, checked with --look."
            )
        elif count := waiting(before.queue, name):
            yield (
                f"Actor {name!r} is gone, and {count} messages of it are in queue {before.queue!r}: leave it in, send "
                f"it no more, and take it out when there are none."
            )


def _parameters(before: Declared, now: Declared) -> Iterator[str]:
    yield from _by_place(before, now)
    kinds = {one.kind for one in now.parameters}
    for one in before.parameters:
        if one.kind == "KEYWORD_ONLY" and not _may_be_named(one.name, now):
            yield f"parameter {one.name!r} is gone, which messages name: keep it, with a default, for one release."
    for one in before.parameters:
        if one.kind.startswith("VAR_") and one.kind not in kinds:
            yield f"it takes no {'*' if one.kind == 'VAR_POSITIONAL' else '**'}{one.name} any more: keep it."
    had = {one.name: one for one in before.parameters if not one.kind.startswith("VAR_")}
    for one in now.parameters:
        if one.needed and not one.kind.startswith("VAR_") and (one.name not in had or not had[one.name].needed):
            yield (
                f"parameter {one.name!r} must be given, and messages of the running release do not have it: give it a "
                f"default, and take the default away when none of them is left."
            )


def _by_place(before: Declared, now: Declared) -> Iterator[str]:
    """What was taken by its place is at that place still, or behind every place in *rest, and has its name."""
    had = [one for one in before.parameters if one.kind in _BY_PLACE]
    places = [one for one in now.parameters if one.kind in _BY_PLACE]
    names = {one.name: one for one in now.parameters if one.kind in _BY_NAME}
    takes_rest = any(one.kind == "VAR_POSITIONAL" for one in now.parameters)
    for place, one in enumerate(had):
        there = places[place].name if place < len(places) else None
        in_rest = there is None and takes_rest and one.name not in names
        if there != one.name and not in_rest:
            yield _moved(one, place, there, names)
        elif one.kind == "POSITIONAL_OR_KEYWORD" and not _may_be_named(one.name, now):
            yield (
                f"parameter {one.name!r} is taken by its place alone, and messages of the running release may name it: "
                f"leave it as it is until none of them is left."
            )
    rest = next((one.name for one in before.parameters if one.kind == "VAR_POSITIONAL"), None)
    for one in places[len(had) :] if rest is not None else ():
        yield (
            f"parameter {one.name!r} is where *{rest} took what messages of the running release carry: put it behind "
            f"*{rest}, with a default."
        )


def _may_be_named(name: str, now: Declared) -> bool:
    """Whether a call that gives an argument by this name is taken."""
    own = next((one for one in now.parameters if one.name == name and not one.kind.startswith("VAR_")), None)
    if own is not None and (own.kind in _BY_NAME or own.needed):
        return own.kind in _BY_NAME
    return any(one.kind == "VAR_KEYWORD" for one in now.parameters)


def _moved(one: Parameter, place: int, there: str | None, names: dict[str, Parameter]) -> str:
    if there is None and one.name not in names:
        return (
            f"parameter {one.name!r} is gone, and messages of the running release carry it: keep it, with a default, "
            f"until none of them is left."
        )
    found = "taken by name alone" if one.name in names and there is None else f"{there!r}"
    return (
        f"parameter {one.name!r} was number {place + 1}, where {found} is now, and messages carry it by its place: "
        f"leave the order as it is and put what is new behind it, with a default."
    )


def _queues(running: Manifest, new: Manifest, waiting: Waiting | None) -> Iterator[str]:
    served = {queue for queues in new.lanes.values() for queue in queues}
    for lane, queues in running.lanes.items():
        for queue in queues:
            if queue not in served and (waiting is None or waiting(queue, None)):
                yield (
                    f"Queue {queue!r} of lane {lane!r} is served by no lane any more, and what waits in it would wait "
                    f"for ever: leave it in a lane until nothing is sent to it and it is empty, checked with --look."
                )


def _entries(new: Manifest) -> Iterator[str]:
    for entry, actor in new.entries.items():
        needed = [one.name for one in new.actors[actor].parameters if one.needed and not one.kind.startswith("VAR_")]
        if needed:
            yield (
                f"Entry {entry!r} sends {actor!r} without arguments, and it needs {', '.join(needed)}: give each a "
                f"default, or send an actor of its own that works out its arguments."
            )


def _migrations(running: Manifest, new: Manifest, root: Path) -> Iterator[str]:
    missing = [head for head in running.heads if head not in new.revisions]
    if missing:
        yield (
            f"The running release's database stands at {', '.join(missing)}, which this one does not know, so that "
            f"`fleet migrate` would stop: is this an older release? Go back by a new release without the change."
        )
        return
    from fleet.storage.expanding import narrowing

    yield from narrowing(root, known=set(running.revisions))
