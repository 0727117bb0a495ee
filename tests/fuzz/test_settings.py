"""Whatever stands in the environment, it is read or refused by the variable's name, and no secret is repeated."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.errors import SettingsInvalid
from fleet.settings import Settings

NAMES = sorted(f"FLEET_{name.upper()}" for name, field in Settings.model_fields.items() if not field.validation_alias)
SECRETS = [f"FLEET_{name.upper()}" for name, field in Settings.model_fields.items() if not field.repr]
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
    ]
)


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(given_values=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5))
def test_settings_are_read_or_refused_by_name(monkeypatch: pytest.MonkeyPatch, given_values: dict[str, str]) -> None:
    with monkeypatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("FLEET_")]:
            patch.delenv(name)
        given_values = {name: MARK * (name in SECRETS) + value for name, value in given_values.items()}
        for name, value in given_values.items():
            patch.setenv(name, value)
        try:
            found = Settings.read()
        except SettingsInvalid as refused:
            assert any(name in str(refused) for name in given_values)
            said = str(refused)
        else:
            said = repr(found)
        assert MARK not in said
