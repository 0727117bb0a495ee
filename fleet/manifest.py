"""What a release of an application declares, as one JSON file: `fleet manifest` writes it, the next release reads it.

Kept beside the image it was made with, it is what `fleet check --against` compares the next release with. It says
nothing of settings, servers or code: actors with their queue and parameters, lanes with their queues, entries, and the
migrations. Not guaranteed: that a release runs which it describes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fleet.app import App
from fleet.catalogue import parameters_of
from fleet.errors import FleetError

FORMAT = 1


class ManifestUnreadable(FleetError):
    """Raised when a file is no manifest that this version can read."""


@dataclass(frozen=True)
class Parameter:
    """One of an actor's: `kind` is `inspect`'s name of it, `needed` whether it has no default."""

    name: str
    kind: str
    needed: bool


@dataclass(frozen=True)
class Declared:
    """An actor: its queue and its parameters in their order."""

    queue: str
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True)
class Manifest:
    """A release. `lanes` is lane -> its queues, `entries` entry -> its actor, `revisions` every migration it has."""

    actors: Mapping[str, Declared]
    lanes: Mapping[str, tuple[str, ...]]
    entries: Mapping[str, str]
    heads: tuple[str, ...]
    revisions: tuple[str, ...]

    def text(self) -> str:
        """As JSON, sorted, so that two releases that declare the same have the same file."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, sort_keys=True) + "\n"


def manifest_of(app: App) -> Manifest:
    """The manifest of a loaded application."""
    from fleet.storage.migrate import revisions

    heads, known = revisions(app.root)
    return Manifest(
        actors={
            name: Declared(actor.queue_name, tuple(Parameter(**one) for one in parameters_of(actor.fn)))
            for name, actor in app.actors.items()
        },
        lanes={lane.name: lane.queues for lane in app.lanes},
        entries={entry.name: entry.actor for entry in app.schedule},
        heads=heads,
        revisions=known,
    )


def read(path: Path) -> Manifest:
    """The manifest in a file. Raises `ManifestUnreadable`."""
    try:
        found: Any = json.loads(path.read_text())
        if found["format"] != FORMAT:
            raise ManifestUnreadable(
                f"{path} has format {found['format']!r}, this version reads {FORMAT}: compare with the release between."
            )
        return Manifest(
            actors={
                name: Declared(actor["queue"], tuple(Parameter(**one) for one in actor["parameters"]))
                for name, actor in found["actors"].items()
            },
            lanes={name: tuple(queues) for name, queues in found["lanes"].items()},
            entries=dict(found["entries"]),
            heads=tuple(found["heads"]),
            revisions=tuple(found["revisions"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestUnreadable(
            f"{path} is no manifest ({error!r}): write one with the running release, `fleet manifest > {path.name}`."
        ) from None
