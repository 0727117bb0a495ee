"""Whatever stands in the environment, or in files, it is read or refused by the variable's name; no secret is shown."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import make_url

import config.settings
import fleet.settings
from fleet import database_url
from fleet.broker.connection import client_from, shown
from fleet.console import tokens
from fleet.errors import SettingsInvalid

KINDS = [fleet.settings.Settings, config.settings.Settings]
FIELDS = {
    str(field.validation_alias or f"FLEET_{name.upper()}"): field
    for name, field in config.settings.Settings.model_fields.items()
}
NAMES = sorted(name for name in FIELDS if name.startswith(("FLEET_", "BOOKS_")))
SECRETS = {
    "FLEET_REDIS_URL",
    "FLEET_DATABASE_URL",
    "FLEET_SENTRY_DSN",
    "FLEET_PAYLOAD_KEYS",
    "FLEET_CONSOLE_TOKENS",
    "BOOKS_BANK_SECRET_ID",
    "BOOKS_BANK_SECRET_KEY",
    "BOOKS_MODEL_KEY",
    "BOOKS_AUTHORITY_KEY",
    "BOOKS_PAYMENTS_KEY",
    "BOOKS_SMTP_USER",
    "BOOKS_SMTP_PASSWORD",
}
"""By name, and not by what their fields say: a field that forgets to hide its value would be none."""
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
        f"ann read sha256:{'a' * 64}",
        f"ann read sha256:{'a' * 64} # hers;ann operate {'b' * 64}",
    ]
)
URLS = st.builds(
    "{}://{}:{}{}@{}{}".format,
    st.sampled_from(["redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "http"]),
    st.sampled_from(["", "ann", "%zz"]) | VALUES,
    st.just(MARK),
    st.just("") | VALUES,
    st.sampled_from(["", "h", "h:6379", "h:0x1", "h:99999999", "[::1]:1", "[::1", "a,b:1,[::1]", "a:,b"]) | VALUES,
    st.sampled_from(
        ["", "/", "/0", "/name/0", "/name", "/x", "/²", "/9" * 3, "/a.sock?db=1", "/0?db=x", "/0?protocol=9"]
    )
    | st.sampled_from(["/0?max_connections=-1", "/0?socket_timeout=nan", "/name?sentinel_password=x", "/0?db=1&db=2"])
    | st.sampled_from(["/0?ssl_ca_certs=gone", "/0?ssl_cert_reqs=x", "/0?ssl_check_hostname=x", "/0?ssl_certfile=gone"])
    | VALUES,
)
"""A Redis URL with a secret where a password stands, which need not be quoted."""
OF_POSTGRES = st.builds(
    "{}://{}:{}{}@{}{}".format,
    st.sampled_from(["postgresql", "postgres", "postgresql+psycopg"]),
    st.sampled_from(["", "ann", "%zz"]) | VALUES,
    st.just(MARK),
    st.just("") | VALUES | st.sampled_from(["@", ":@", "/", "?", "?a=", "/@", "?a=@", "%40"]),
    st.sampled_from(["", "h", "h:5432", "h:0x1", "h:99999999", "[::1]:1", "[::1", "h:", "h:1,i:2"]) | VALUES,
    st.sampled_from(["", "/", "/books", "/bo@oks", f"/books?password={MARK}", f"/b?pass%77ord={MARK}&sslmode=disable"])
    | st.sampled_from([f"?sslpassword={MARK}", f"/b?host=/run&password={MARK}x%40y", f"/b?password={MARK}@x"]),
)
"""The same of PostgreSQL."""
MANY = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))


def require_sound(kind: type[fleet.settings.Settings], names: set[str]) -> None:
    """What is read, or the refusal, which names one of these, shows no secret; nor do those who read on in it."""
    try:
        read = kind.read()
        said = repr(read)
        if read.redis_url is not None:
            client_from(read.redis_url)
            said += shown(read.redis_url)
        if read.database_url is not None:
            said += database_url.shown(read.database_url)
            parsed = make_url(read.database_url)
            said += f"{parsed.username} {parsed.host} {parsed.port} {parsed.database}"
        tokens.read(read.console_tokens, read.console_tokens_file)
    except SettingsInvalid as refused:
        said = str(refused)
        assert any(name in said for name in names), said
    assert MARK not in said


def without_any(patch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("FLEET_", "BOOKS_"))]:
        patch.delenv(name)


def test_exactly_the_secrets_are_kept_out_of_what_settings_show() -> None:
    assert {name for name, field in FIELDS.items() if not field.repr} == SECRETS


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


@MANY
@given(url=URLS)
def test_a_redis_url_is_taken_or_refused_by_name(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    with monkeypatch.context() as patch:
        without_any(patch)
        patch.setenv("FLEET_REDIS_URL", url)
        require_sound(fleet.settings.Settings, {"FLEET_REDIS_URL"})


@MANY
@given(url=OF_POSTGRES)
def test_a_postgresql_url_is_taken_or_refused_by_name_and_then_parsed_as_it_is_shown(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    with monkeypatch.context() as patch:
        without_any(patch)
        patch.setenv("FLEET_DATABASE_URL", url)
        require_sound(fleet.settings.Settings, {"FLEET_DATABASE_URL"})


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
