"""The Dockerfile read as its builder would, and its COPYs done in folders: what stands in which stage.

Only what this Dockerfile uses: RUN and CMD in JSON form, COPY of one source, no ONBUILD, no heredoc.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "Dockerfile").read_text()


@dataclass
class Stage:
    """A FROM and what follows it: (instruction, its words)."""

    base: str
    name: str
    steps: list[tuple[str, list[str]]] = field(default_factory=list)

    def all_of(self, instruction: str) -> list[list[str]]:
        return [words for name, words in self.steps if name == instruction]


def stages() -> list[Stage]:
    """The stages in their order; what stands before the first FROM belongs to none."""
    found: list[Stage] = []
    for name, rest in _instructions():
        if name == "FROM":
            base, *named = rest.split()
            found.append(Stage(base, named[1] if named else ""))
        elif found:
            words = json.loads(rest) if rest.startswith("[") else rest.split()
            found[-1].steps.append((name, words))
    return found


def _instructions() -> Iterator[tuple[str, str]]:
    lines = [line for line in TEXT.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        name, _, rest = line.partition(" ")
        yield name, rest.strip()


def sent(path: Path) -> bool:
    """Whether a file of the root reaches the builder, by .dockerignore: the last pattern that matches decides."""
    relative = path.relative_to(ROOT).as_posix()
    above = [relative, *(str(parent) for parent in PurePosixPath(relative).parents)]
    reaches = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.strip().lstrip("!")
        if not pattern or pattern.startswith("#"):
            continue
        anywhere = pattern.removeprefix("**/")
        if any(
            fnmatchcase(part, pattern) or (anywhere != pattern and PurePosixPath(part).name == anywhere)
            for part in above
            if pattern != "*" or "/" not in part
        ):
            reaches = line.strip().startswith("!")
    return reaches


def copy(stage: Stage, into: Path) -> None:
    """Do a stage's COPYs from the root, each to its place below `into`; those from another stage are left out."""
    for words in stage.all_of("COPY"):
        if words[0].startswith("--from"):
            continue
        *sources, target = words
        for source in sources:
            place = into / target.lstrip("/")
            if (ROOT / source).is_file():
                assert sent(ROOT / source), f".dockerignore keeps {source} from the builder"
                place = place / source if target.endswith("/") else place
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, place)
            else:
                _copy_folder(ROOT / source, place)


def _copy_folder(source: Path, place: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file() and sent(path):
            target = place / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    assert place.is_dir(), f".dockerignore keeps everything of {source} from the builder"
