"""A janitor's file, its actor, its log event and its heading in the runbook are one word."""

from __future__ import annotations

import re

import pytest

from fleet import janitor
from fleet.app import janitors, load
from tests.conftest import ROOT

NAMES = sorted(path.stem for path in (ROOT / "janitors").glob("*.py") if path.stem != "__init__")


def anchors(text: str) -> set[str]:
    """The fragments that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", NAMES)
def test_the_runbook_of_a_janitors_line_leads_to_a_heading(name: str) -> None:
    page, _, anchor = janitor.runbook(name).partition("#")
    assert anchor in anchors((ROOT / page).read_text())


@pytest.mark.parametrize("name", NAMES)
def test_a_janitor_has_an_actor_of_its_name_an_entry_and_something_to_look_after(name: str) -> None:
    app = load(ROOT)
    assert name in janitors(app)
    assert app.actor(name).queue_name == "housekeeping"
    assert [entry for entry in app.schedule if entry.actor == name], "it has no entry in config/schedule.py"
    assert f'"{name}"' in (ROOT / "janitors" / f"{name}.py").read_text(), "its log event is not its name"
    assert callable(janitors(app)[name].chores)
