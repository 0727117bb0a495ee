"""No password of a PostgreSQL URL is shown, wherever it stands; one that cannot be told apart is refused by name."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, make_url

from fleet import database_url
from fleet.errors import ServerUnreachable, SettingsInvalid
from fleet.servers import require_postgres
from fleet.settings import Settings
from fleet.storage.engine import psycopg_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://fleet@db:5432/books", "postgresql://fleet@db:5432/books"),
        ("postgresql://fleet:m7Qx@db/books", "postgresql://fleet:***@db/books"),
        ("postgresql://fleet:a/b?m7Qx@db/books", "postgresql://fleet:***@db/books"),
        ("postgresql://fleet:m%407Qx@[::1]:5432/books", "postgresql://fleet:***@[::1]:5432/books"),
        ("postgresql://fleet@corp:m7Qx@db:5432/books", "postgresql://fleet@corp:***@db:5432/books"),
        ("postgresql+psycopg://:m7Qx@db", "postgresql+psycopg://:***@db"),
        ("postgresql://postgres:@/postgres?host=/run/pg", "postgresql://postgres:***@/postgres?host=/run/pg"),
        ("postgresql://db/books?user=fleet&password=m7Qx", "postgresql://db/books?user=fleet&password=***"),
        (
            "postgresql://fleet:m7Qx@db/books?sslkey=/k&sslpassword=m7Qx&pass%77ord=m7Qx&sslmode=require",
            "postgresql://fleet:***@db/books?sslkey=/k&sslpassword=***&pass%77ord=***&sslmode=require",
        ),
    ],
)
def test_a_url_is_taken_and_shown_without_its_passwords(monkeypatch: pytest.MonkeyPatch, url: str, shown: str) -> None:
    monkeypatch.setenv("FLEET_DATABASE_URL", url)
    assert Settings.read().database_url == url
    assert database_url.shown(url) == shown
    make_url(url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://fleet:marked@7Qx@db/books", "there is a bare @ / or ?"),
        ("postgresql://fleet:p@a:7Qx@db:5432/books", "there is a bare @ / or ?"),
        ("postgresql://fleet:p@a/7Qx@db/books", "there is a bare @ / or ?"),
        ("postgresql://db:5432/books?password=m@7Qx", "there is a bare @ / or ?"),
        ("postgresql://fleet:a@b/books?password=m@7Qx", "there is a bare @ / or ?"),
        ("postgresql://fleet:marked-7Qx/books", "its port is no number"),
        ("postgresql://fleet:p@db:7Qx/books", "its port is no number"),
        ("postgresql://fleet:p@db:/books", "its port is no number"),
        ("postgresql://fleet:p@db:65536/books", "its port is no number"),
        (f"postgresql://fleet:p@db:{'7' * 5_000}/books", "its port is no number"),
    ],
)
def test_a_url_that_cannot_be_told_apart_is_refused_and_nothing_of_it_repeated(
    monkeypatch: pytest.MonkeyPatch, url: str, said: str
) -> None:
    monkeypatch.setenv("FLEET_DATABASE_URL", url)
    with pytest.raises(SettingsInvalid) as raised:
        Settings.read()
    refused = str(raised.value)
    assert refused.startswith(f"Settings: FLEET_DATABASE_URL: Value error, {said}") and "percent-encode @" in refused
    assert "7" not in refused and "fleet:" not in refused and "marked" not in refused
    assert database_url.shown(url) == "postgresql://***"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://127.0.0.1:9/books?user=fleet&password=marked-7Qx",
        "postgresql://fleet:marked-7Qx@127.0.0.1:9/books?sslpassword=marked-7Qx",
    ],
)
def test_a_postgresql_that_does_not_answer_is_named_without_a_password(url: str) -> None:
    engine = create_engine(psycopg_url(url))
    with pytest.raises(ServerUnreachable, match="Check FLEET_DATABASE_URL") as raised:
        require_postgres(engine)
    engine.dispose()
    assert "127.0.0.1:9/books" in str(raised.value) and "marked" not in str(raised.value)
