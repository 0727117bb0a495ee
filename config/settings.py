"""What the bookkeeping takes from the environment (`BOOKS_…`), on top of the engine's own settings (`FLEET_…`)."""

from __future__ import annotations

from functools import cache

from pydantic import Field
from pydantic_settings import SettingsConfigDict

import fleet.settings


class Settings(fleet.settings.Settings):
    """The engine's settings and the addresses of the world outside."""

    model_config = SettingsConfigDict(env_prefix="FLEET_", frozen=True, extra="ignore", populate_by_name=True)

    bank_url: str = Field("https://bankaccountdata.gocardless.com", validation_alias="BOOKS_BANK_URL")
    """The bank aggregator's API."""
    bank_secret_id: str = Field("", validation_alias="BOOKS_BANK_SECRET_ID")
    """Who we are to it."""
    bank_secret_key: str = Field("", validation_alias="BOOKS_BANK_SECRET_KEY", repr=False)
    """And by what it knows that."""

    model_url: str = Field("https://api.openai.com/v1", validation_alias="BOOKS_MODEL_URL")
    """A model's API, of OpenAI's form."""
    model_key: str = Field("", validation_alias="BOOKS_MODEL_KEY", repr=False)
    """Its key."""
    model_name: str = Field("gpt-4.1-mini", validation_alias="BOOKS_MODEL_NAME")
    """Which model."""

    authority_url: str = Field("https://authority.invalid", validation_alias="BOOKS_AUTHORITY_URL")
    """The tax authority's door for filings."""
    authority_key: str = Field("", validation_alias="BOOKS_AUTHORITY_KEY", repr=False)
    """Its key."""
    payments_url: str = Field("https://payments.invalid", validation_alias="BOOKS_PAYMENTS_URL")
    """The payment gateway."""
    payments_key: str = Field("", validation_alias="BOOKS_PAYMENTS_KEY", repr=False)
    """Its key."""

    smtp_host: str = Field("127.0.0.1", validation_alias="BOOKS_SMTP_HOST")
    """The mail server."""
    smtp_port: int = Field(25, validation_alias="BOOKS_SMTP_PORT")
    """Its port."""
    mail_from: str = Field("books@example.com", validation_alias="BOOKS_MAIL_FROM")
    """Whose name stands on mails."""


@cache
def settings() -> Settings:
    """This process's settings, read once.

    Raises `SettingsInvalid` if the environment cannot be read.
    """
    return Settings.read()
