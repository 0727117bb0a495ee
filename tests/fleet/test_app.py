"""An application's rooms are found where they should be, or both places are named."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fleet as engine
from tests.fleet.conftest import MINIMAL, Fleet, WriteApp

ENGINE = Path(engine.__file__).parents[1]


@pytest.mark.parametrize("room", ["actors", "config"])
def test_a_root_without_a_room_that_is_needed_is_no_application(fleet: Fleet, write_app: WriteApp, room: str) -> None:
    root = write_app()
    (root / room / "__init__.py").unlink()
    done = fleet(root, "check")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert f"{root} is not an application's root: {room}/__init__.py is not there." in done.stderr


@pytest.mark.parametrize("name", ["lanes", "schedule"])
def test_a_configuration_that_lacks_a_file_says_what_should_stand_in_it(
    fleet: Fleet, write_app: WriteApp, name: str
) -> None:
    root = write_app()
    (root / "config" / f"{name}.py").unlink()
    done = fleet(root, "check")
    assert done.returncode == 2
    assert (
        f"config/{name}.py is not there; it declares {'LANES' if name == 'lanes' else name.upper()} = [" in done.stderr
    )


@pytest.mark.parametrize(("lanes", "found"), [("None", "NoneType"), ("['main']", "list"), ("lane('a', 'b')", "Lane")])
def test_lanes_that_are_no_list_of_lanes_are_refused(fleet: Fleet, write_app: WriteApp, lanes: str, found: str) -> None:
    done = fleet(write_app(lanes), "check")
    assert done.returncode == 2
    assert f"LANES must be a list of Lane, found {found}" in done.stderr


@pytest.mark.parametrize("room", ["actors", "config", "janitors"])
def test_an_installed_package_in_a_rooms_place_is_named_with_both_paths(write_app: WriteApp, room: str) -> None:
    """It was imported before the root stood on the path, as a package's start-up file may do."""
    root = write_app()
    (root / "janitors").mkdir()
    (root / "janitors" / "__init__.py").touch()
    other = root.parent / "site" / room
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    script = f"import sys; sys.path.insert(0, {str(other.parent)!r}); import {room}"
    found = load(root, script)
    assert found.startswith("fleet.errors.ShadowedRoom"), found
    assert f"The room '{room}' was found at {other / '__init__.py'}" in found
    assert f"keeps it at {root / room}." in found


@pytest.mark.parametrize("room", ["beat", "middleware"])
@pytest.mark.parametrize("shape", ["package", "module"])
def test_an_application_that_shadows_a_room_of_the_engine_is_told_so(
    write_app: WriteApp, room: str, shape: str
) -> None:
    root = write_app()
    mine = root / room / "__init__.py" if shape == "package" else root / f"{room}.py"
    mine.parent.mkdir(exist_ok=True)
    mine.touch()
    found = load(root)
    assert found.startswith("fleet.errors.ShadowedRoom"), found
    assert str(mine) in found and str(ENGINE / room) in found


SENDS = "from actors.greetings import greet; greet.send()"


@pytest.mark.parametrize("where", ["middleware/__init__.py", "middleware.py"])
def test_a_sender_whose_own_package_shadows_a_room_of_the_engine_is_told_so_as_it_imports_actors(
    write_app: WriteApp, where: str
) -> None:
    root = write_app()
    mine = write(root.parent / "web" / where)
    found = run(root, mine.parents[where.count("/")], "import actors.greetings")
    assert found.startswith("fleet.errors.ShadowedRoom"), found
    assert str(mine) in found and str(ENGINE / "middleware") in found


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("config/settings.py", "DEBUG = True"),
        ("config/settings/__init__.py", ""),
        ("config.py", "def settings(): ..."),
        ("config/settings.py", "def settings(): return object()"),
    ],
)
def test_a_sender_whose_own_config_shadows_the_applications_is_told_so_at_its_first_send(
    write_app: WriteApp, where: str, text: str
) -> None:
    root = write_app()
    mine = write(root.parent / "web" / where, text)
    if where != "config.py":
        write(root.parent / "web" / "config" / "__init__.py")
    found = run(root, root.parent / "web", SENDS)
    assert found.startswith("fleet.errors.ShadowedRoom"), found
    assert str(mine) in found and str(root / "config") in found


@pytest.mark.parametrize("text", ["DEBUG = True", "def settings(): return object()", "settings = {}"])
@pytest.mark.parametrize("after", [SENDS, "from fleet.app import settings; settings()"])
def test_an_applications_own_settings_that_are_not_the_fleets_are_told_what_they_lack(
    write_app: WriteApp, text: str, after: str
) -> None:
    root = write_app()
    mine = write(root / "config" / "settings.py", text)
    found = run(root, root, after)
    assert found.startswith("fleet.errors.DeclarationInvalid"), found
    assert f"{mine} has no function settings() that returns a fleet.settings.Settings" in found


def test_who_sends_by_name_may_have_packages_of_any_name_but_the_engines(
    tmp_path: Path, redis_url: str, namespace: str
) -> None:
    web = tmp_path / "web"
    for room in ("actors", "beat", "config", "janitors", "middleware"):
        write(web / room / "__init__.py")
        write(web / room / "settings.py")
    sends = f"import fleet; fleet.connect({redis_url!r}, namespace={namespace!r}).send('greet')"
    assert run(web, web, sends).startswith("fleet.errors.NotDeclared: There is no actor named 'greet'.")


def test_a_root_behind_a_symbolic_link_is_no_shadow(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(MINIMAL)
    assert load(tmp_path / "link") == ""


def test_an_application_is_found_from_any_folder_by_a_relative_path(fleet: Fleet, tmp_path: Path) -> None:
    shutil.copytree(MINIMAL, tmp_path / "here")
    assert fleet(Path("here"), "check").returncode == 0


def load(root: Path, before: str = "") -> str:
    """Load an application in a fresh interpreter; the last line of what it raised."""
    script = f"{before}\nfrom pathlib import Path\nfrom fleet.app import load\nload(Path({str(root)!r}))\n"
    return _last_line(script, root)


def run(root: Path, first: Path, script: str) -> str:
    """Run what sends, with one folder and then the application's root in front of its path; the same of that."""
    return _last_line(f"import sys; sys.path[:0] = [{str(first)!r}, {str(root)!r}]\n{script}\n", root.parent)


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _last_line(script: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=30)
    return (done.stderr.strip().splitlines() or [""])[-1]
