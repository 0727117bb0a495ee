"""What a child process of a test inherits."""

from __future__ import annotations

import os
from pathlib import Path


def child_path(first: Path) -> str:
    """A PYTHONPATH: this folder, then this process's own, which may lay other versions over the installed ones."""
    return os.pathsep.join([str(first), *filter(None, [os.environ.get("PYTHONPATH")])])
