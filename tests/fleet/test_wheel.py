"""The wheel holds the engine's rooms whole, and none of the application's."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wheel_holds_the_engine_with_its_scripts_and_migrations_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    rooms = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert rooms == {"fleet", "beat", "middleware"}
    wanted = {
        str(path.relative_to(ROOT))
        for room in rooms
        for path in (ROOT / room).rglob("*")
        if path.suffix in (".py", ".lua", ".html", ".css", ".js")
    }
    assert any(name.endswith(".lua") for name in wanted)
    assert any("migrations/versions/" in name for name in wanted)
    assert wanted - names == set()
    assert not [name for name in names if name.endswith((".pyc", ".bak"))]
