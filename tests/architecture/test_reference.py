"""The reference says what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.reference import page, told_of_fields
from tests.conftest import ROOT

PAGE = ROOT / "docs/reference.md"
MAKE = "python -m tests.architecture.reference docs/reference.md"


def test_the_reference_is_what_the_code_would_have_written_today() -> None:
    written, wanted = PAGE.read_text().splitlines(), page().splitlines()
    differing = [f"- {line}" for line in written if line not in wanted] + [
        f"+ {line}" for line in wanted if line not in written
    ]
    assert written == wanted, "\n".join([f"docs/reference.md is of yesterday; run {MAKE}", *differing])[:3000]


@pytest.mark.parametrize("source", ["fleet/settings.py", "config/settings.py"])
def test_every_setting_says_what_it_means(source: str) -> None:
    told = told_of_fields(ROOT / source)
    assert told
    assert not [name for name, text in told.items() if not text.strip()], f"{source}: write it below the field"


def test_the_parts_of_the_reference_are_not_empty() -> None:
    for part in page().split("\n## ")[1:]:
        assert part.count("\n|") > 3, part[:200]


def test_what_is_wrong_with_the_page_is_named(tmp_path: Path) -> None:
    source = tmp_path / "settings.py"
    source.write_text("class Settings:\n    told: int = 1\n    '''So it is.'''\n    silent: int = 2\n")
    assert told_of_fields(source) == {"told": "So it is.", "silent": ""}
