"""Settings come from the environment, are frozen, and their faults name the variable and no secret."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import Field, ValidationError

from fleet.errors import SettingsInvalid
from fleet.settings import Settings


class Shop(Settings):
    """An application's settings with a variable of its own name."""

    port: int = Field(25, validation_alias="SHOP_PORT")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("FLEET_")]:
        monkeypatch.delenv(name)


def test_without_an_environment_everything_has_a_default_but_the_servers() -> None:
    settings = Settings.read()
    assert (settings.redis_url, settings.database_url) == (None, None)
    assert (settings.namespace, settings.clock_rate) == ("dramatiq", 1.0)
    assert settings.leader_ttl > 2 * settings.leader_renewal


def test_settings_once_read_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Settings.read().namespace = "other"


@pytest.mark.parametrize("value", ["PT9S", "00:00:09", "9", "9s", "9.0", "9000ms", " 0.15m "])
def test_a_duration_is_read_as_iso_8601_by_the_clock_or_as_a_number_and_a_unit(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("FLEET_LEADER_TTL", value)
    assert Settings.read().leader_ttl == timedelta(seconds=9)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FLEET_CLOCK_ORIGIN", "2026-03-02T00:00:00"),
        ("FLEET_CLOCK_ANCHOR", "2026-03-02T00:00:00"),
        ("FLEET_CLOCK_ORIGIN", "yesterday"),
        ("FLEET_CLOCK_RATE", "0"),
        ("FLEET_CLOCK_RATE", "nan"),
        ("FLEET_DATABASE_POOL", "0"),
        ("FLEET_METRICS_PORT", "65536"),
        ("WATCHDOG_USEC", "soon"),
        ("FLEET_LEADER_TTL", "soon"),
        ("FLEET_LEADER_RENEWAL", "0"),
        ("FLEET_LEADER_RENEWAL", "-PT2S"),
        ("FLEET_LOST_AFTER", "2s"),
        ("FLEET_DRAIN", "0s"),
        ("FLEET_DRAIN", "for ever"),
        ("FLEET_LOG_FORMAT", "xml"),
        ("FLEET_LOG_LEVEL", "LOUD"),
        ("FLEET_REDIS_URL", "host:6379"),
        ("FLEET_DATABASE_URL", "mysql://host/books"),
        ("SHOP_PORT", "x"),
    ],
)
def test_a_setting_that_cannot_be_read_is_named_as_the_environment_spells_it(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsInvalid) as raised:
        Shop.read()
    assert f"Settings: {name}: " in str(raised.value)


def test_all_faults_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_CLOCK_RATE", "-1")
    monkeypatch.setenv("FLEET_LOG_FORMAT", "xml")
    with pytest.raises(SettingsInvalid, match=r"FLEET_CLOCK_RATE.*; .*FLEET_LOG_FORMAT"):
        Settings.read()


def test_no_secret_stands_in_a_fault_or_in_the_representation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_REDIS_URL", "s3cret")
    with pytest.raises(SettingsInvalid) as raised:
        Settings.read()
    assert "s3cret" not in str(raised.value)
    monkeypatch.setenv("FLEET_REDIS_URL", "redis://:s3cret@localhost")
    monkeypatch.setenv("FLEET_DATABASE_URL", "postgresql://a:s3cret@localhost/b")
    monkeypatch.setenv("FLEET_SENTRY_DSN", "https://s3cret@sentry.invalid/1")
    assert "s3cret" not in repr(Settings.read())


def test_a_term_shorter_than_two_renewals_and_the_margin_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_LEADER_RENEWAL", "2s")
    monkeypatch.setenv("FLEET_LEADER_TTL", "4.49s")
    with pytest.raises(SettingsInvalid, match=r"FLEET_LEADER_TTL 0:00:04.49.* Give a ttl of 0:00:04.5"):
        Settings.read()
    monkeypatch.setenv("FLEET_LEADER_TTL", "4.5s")
    assert Settings.read().leader_ttl == timedelta(seconds=4.5)


def test_a_duration_that_cannot_be_read_is_answered_with_how_to_write_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_LEADER_TTL", "six")
    with pytest.raises(SettingsInvalid, match=r"FLEET_LEADER_TTL: .*'six' is no duration; write 6s, 500ms, 1m or PT6S"):
        Settings.read()


def test_a_secret_may_stand_in_a_file_that_is_named_like_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bank(Settings):
        key: str = Field("", validation_alias="BOOKS_BANK_KEY", repr=False)

    (tmp_path / "fleet_redis_url").write_text("redis://:secret@redis:6379/0\n")
    (tmp_path / "FLEET_PAYLOAD_KEYS").write_text("one,two")
    (tmp_path / "books_bank_key").write_text("from a file")
    (tmp_path / "fleet_namespace").write_text("from-a-file")
    monkeypatch.setenv("FLEET_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("FLEET_NAMESPACE", "from-the-environment")
    settings = Bank.read()
    assert settings.redis_url == "redis://:secret@redis:6379/0"
    assert settings.payload_keys == ("one", "two")
    assert (settings.key, settings.namespace) == ("from a file", "from-the-environment")


def test_a_folder_of_secrets_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_SECRETS_DIR", str(tmp_path / "gone"))
    with pytest.raises(SettingsInvalid, match=r"FLEET_SECRETS_DIR is '.*gone', which is no folder"):
        Settings.read()


def test_a_file_of_secrets_that_is_no_text_is_refused_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fleet_redis_url").write_bytes(b"redis://:s3cret\xff@host")
    monkeypatch.setenv("FLEET_SECRETS_DIR", str(tmp_path))
    with pytest.raises(SettingsInvalid, match=r"FLEET_REDIS_URL: the file .* cannot be read as text") as raised:
        Settings.read()
    assert "s3cret" not in str(raised.value)
