"""A key of the world outside is taken without the blanks around it, and one that no header takes is refused unseen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from config.settings import Settings
from fleet.errors import SettingsInvalid

KEYS = ("BANK_SECRET_ID", "BANK_SECRET_KEY", "MODEL_KEY", "AUTHORITY_KEY", "PAYMENTS_KEY")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("FLEET_", "BOOKS_"))]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("around", ["\n", "\r\n", " \t"])
def test_a_line_end_or_a_blank_around_a_key_is_no_part_of_it(
    monkeypatch: pytest.MonkeyPatch, name: str, around: str
) -> None:
    monkeypatch.setenv(f"BOOKS_{name}", f"{around}sk-marked 7Qx{around}")
    assert getattr(Settings.read(), name.lower()) == "sk-marked 7Qx"


@pytest.mark.parametrize("name", [*KEYS, "SMTP_PASSWORD"])
@pytest.mark.parametrize("within", ["\n", "\r", "\x1f", "\x7f", "\u200b"])
def test_a_control_character_within_a_key_is_refused_without_repeating_it(
    monkeypatch: pytest.MonkeyPatch, name: str, within: str
) -> None:
    if name == "SMTP_PASSWORD":
        monkeypatch.setenv("BOOKS_SMTP_USER", "books")
    monkeypatch.setenv(f"BOOKS_{name}", f"sk-marked{within}7Qx")
    with pytest.raises(SettingsInvalid) as raised:
        Settings.read()
    assert f"BOOKS_{name}: Value error, there is a line's end or another control character in it" in str(raised.value)
    assert "marked" not in str(raised.value) and "7Qx" not in str(raised.value)


@pytest.mark.parametrize("name", ["MODEL_KEY", "AUTHORITY_KEY", "PAYMENTS_KEY"])
def test_a_key_that_no_header_can_hold_is_refused_without_repeating_it(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(f"BOOKS_{name}", "sk-märked-7Qx")
    with pytest.raises(SettingsInvalid, match=f"BOOKS_{name}: Value error, give ASCII alone") as raised:
        Settings.read()
    assert "rked" not in str(raised.value)


def test_a_key_in_a_file_is_taken_as_one_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "BOOKS_MODEL_KEY").write_text("sk-marked-7Qx\n")
    monkeypatch.setenv("FLEET_SECRETS_DIR", str(tmp_path))
    assert Settings.read().model_key == "sk-marked-7Qx"
