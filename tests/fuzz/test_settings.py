"""Whatever stands in the environment, or in files, it is read or refused by the variable's name; no secret is shown."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import config.settings
import fleet.settings
from fleet.errors import SettingsInvalid

KINDS = [fleet.settings.Settings, config.settings.Settings]
FIELDS = {
    str(field.validation_alias or f"FLEET_{name.upper()}"): field
    for name, field in config.settings.Settings.model_fields.items()
}
NAMES = sorted(name for name in FIELDS if name.startswith(("FLEET_", "BOOKS_")))
SECRETS = {name for name, field in FIELDS.items() if not field.repr}
MARK = "s3cr3t-"
VALUES = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    [
        "",
        "0",
        "-1",
        "1e400",
        "nan",
        "6s",
        "redis://",
        "postgresql://",
        "2026-03-02",
        "2026-03-02T00:00:00+01:00",
        "json",
        "none",
        "mail.example",
    ]
)
MANY = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))


def require_sound(kind: type[fleet.settings.Settings], names: set[str]) -> None:
    """What is read, or the refusal, which names one of these, shows no secret."""
    try:
        said = repr(kind.read())
    except SettingsInvalid as refused:
        said = str(refused)
        assert any(name in said for name in names), said
    assert MARK not in said


def without_any(patch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("FLEET_", "BOOKS_"))]:
        patch.delenv(name)


@pytest.mark.parametrize("kind", KINDS, ids=["the engine's", "the bookkeeping's"])
@MANY
@given(values=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5))
def test_settings_are_read_or_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, kind: type[fleet.settings.Settings], values: dict[str, str]
) -> None:
    with monkeypatch.context() as patch:
        without_any(patch)
        for name, value in values.items():
            patch.setenv(name, MARK * (name in SECRETS) + value)
        require_sound(kind, set(values))


@pytest.mark.parametrize("kind", KINDS, ids=["the engine's", "the bookkeeping's"])
@MANY
@given(
    files=st.dictionaries(st.sampled_from(NAMES), VALUES.map(str.encode) | st.binary(max_size=30), max_size=5),
    small=st.booleans(),
)
def test_settings_in_files_are_read_or_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, kind: type[fleet.settings.Settings], files: dict[str, bytes], small: bool
) -> None:
    with monkeypatch.context() as patch, TemporaryDirectory() as folder:
        without_any(patch)
        patch.setenv("FLEET_SECRETS_DIR", folder)
        for name, content in files.items():
            path = Path(folder, name.lower() if small else name)
            path.write_bytes(MARK.encode() * (name in SECRETS) + content)
        require_sound(kind, set(files))
