"""Which lanes the files of a deployment work, as they are written: for the parts of `fleet check` that compare the two.

Reads the Compose file in the root, under any name that Compose looks for itself, and every YAML file below
`config/deploy/kubernetes`: a Deployment whose command works a lane, and patches of it by its name. A file that is no
YAML is `NotReadable`. Not seen: files elsewhere, such as Compose's overrides; what another tool, a JSON patch or a
chart makes of them; nor a patch that finds its Deployments by a target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Of these Compose takes the first that is there.
COMPOSE = ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")
KUBERNETES = Path("config/deploy/kubernetes")


class NotReadable(Exception):
    """Raised when a file that should be YAML is not."""


@dataclass(frozen=True)
class Worked:
    """What one file says of the Deployment of a lane; `container` and `whole` are the one that works it.

    `container` is as this file has it, empty where it says nothing of it; `whole` as the file with its command has it.
    """

    where: str
    lane: str
    pod: Mapping[str, Any]
    container: Mapping[str, Any]
    whole: Mapping[str, Any]

    @property
    def declares(self) -> bool:
        """Whether it is the Deployment itself, and no patch of it."""
        return self.container is self.whole


def services(root: Path) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Of each Compose service that works a lane: where it stands, the lane, its body."""
    for path in [root / name for name in COMPOSE if (root / name).is_file()][:1]:
        for document in _documents(path):
            for service, body in (document.get("services") or {}).items():
                if lane := _lane(body.get("command")):
                    yield f"{path.name}, service {service!r}", lane, body


def deployments(root: Path) -> Iterator[Worked]:
    """Each Deployment that works a lane, and each patch of one."""
    found = [
        (path.relative_to(root), str((document.get("metadata") or {}).get("name", "")), _pod(document))
        for path in sorted((root / KUBERNETES).rglob("*.y*ml"))
        for document in _documents(path)
        if document.get("kind") == "Deployment"
    ]
    lanes: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for _, name, pod in found:
        for container in pod.get("containers") or ():
            if lane := _lane([*(container.get("command") or ()), *(container.get("args") or ())]):
                lanes[name] = (lane, container)
    for path, name, pod in found:
        if name in lanes:
            lane, whole = lanes[name]
            here = [one for one in pod.get("containers") or () if one.get("name") == whole.get("name")]
            yield Worked(f"{path}, Deployment {name!r}", lane, pod, here[0] if here else {}, whole)


def _documents(path: Path) -> list[Mapping[str, Any]]:
    import yaml

    try:
        return [document for document in yaml.safe_load_all(path.read_text()) if isinstance(document, dict)]
    except yaml.YAMLError as error:
        raise NotReadable(f"{path} is no YAML: {error}. Mend it; it was not compared with the lanes.") from None


def _pod(document: Mapping[str, Any]) -> Mapping[str, Any]:
    template = (document.get("spec") or {}).get("template") or {}
    return template.get("spec") or {}


def _lane(command: Any) -> str | None:
    """The lane that a command works, if it is `… work LANE`."""
    words = command.split() if isinstance(command, str) else [str(word) for word in command or ()]
    return words[words.index("work") + 1] if "work" in words[:-1] else None
