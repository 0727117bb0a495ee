"""What README and docs say of the tree is true: links lead somewhere, and named log events exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleet.ledger import VERDICTS

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
CODE = "\n".join(
    path.read_text()
    for room in ("fleet", "beat", "middleware", "books", "janitors")
    for path in sorted((ROOT / room).rglob("*.py"))
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_into_the_tree_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links {target}"


def test_every_file_of_the_tree_that_a_module_names_is_there() -> None:
    named = re.compile(r"(?<![\w/.])(?:tests|docs|fleet|books)/[\w./-]+\.(?:py|md|lua)\b")
    for path in (path for path in ROOT.rglob("*.py") if ".venv" not in path.parts):
        gone = [file for file in named.findall(path.read_text()) if not (ROOT / file).exists()]
        assert not gone, f"{path.relative_to(ROOT)} names {', '.join(gone)}"


def test_every_event_of_the_runbook_is_one_that_the_code_logs() -> None:
    first_cells = [
        line.split("|")[1] for line in (ROOT / "docs/when-things-go-wrong.md").read_text().splitlines() if "|" in line
    ]
    named = {name for cell in first_cells for name in re.findall(r"`([a-z_]+)`", cell) if "_" in name}
    statuses = {"done_with_errors"}
    logged = set(re.findall(r'"([a-z]+(?:_[a-z]+)+)"', CODE)) | {f"slots_{verdict}" for verdict in VERDICTS}
    assert len(named) > 8
    assert named - statuses <= logged


def test_every_command_that_the_readme_names_exists() -> None:
    from fleet.cli import cli

    commands = {(command.name or command.callback.__name__) for command in cli.registered_commands if command.callback}
    commands |= {group.name for group in cli.registered_groups if group.name}
    for page in PAGES:
        for name in re.findall(r"`fleet ([a-z]+)", page.read_text()):
            assert name in commands, f"{page.name} names `fleet {name}`"


def test_no_page_and_no_module_holds_a_path_of_the_machine_it_was_written_on() -> None:
    for path in [*PAGES, *(path for path in ROOT.rglob("*.py") if ".venv" not in path.parts)]:
        if path.name != "test_documents.py":
            assert "/work/" not in path.read_text().replace("fleet/workers/", ""), path


def test_every_page_stands_in_the_index() -> None:
    index = (ROOT / "docs/README.md").read_text()
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert not [name for name in sorted(pages) if f"({name}" not in index]
