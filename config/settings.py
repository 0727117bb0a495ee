"""What the bookkeeping takes from the environment (`BOOKS_…`), on top of the engine's own settings (`FLEET_…`)."""

from __future__ import annotations

import ipaddress
from functools import cache
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

import fleet.settings

_OF_HEADERS = ("model_key", "authority_key", "payments_key")
_SECRETS = (*_OF_HEADERS, "bank_secret_id", "bank_secret_key", "smtp_user", "smtp_password")


class Settings(fleet.settings.Settings):
    """The engine's settings and the addresses of the world outside."""

    model_config = SettingsConfigDict(env_prefix="FLEET_", frozen=True, extra="ignore", populate_by_name=True)

    bank_url: str = Field("https://bankaccountdata.gocardless.com", validation_alias="BOOKS_BANK_URL")
    """The bank aggregator's API."""
    bank_secret_id: str = Field("", validation_alias="BOOKS_BANK_SECRET_ID", repr=False)
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
    smtp_tls: Literal["starttls", "none"] | None = Field(None, validation_alias="BOOKS_SMTP_TLS")
    """`starttls` or `none`; unset it is `none` on this host and `starttls` for every other."""
    smtp_user: str = Field("", validation_alias="BOOKS_SMTP_USER", repr=False)
    """Who logs in there, if anybody does."""
    smtp_password: str = Field("", validation_alias="BOOKS_SMTP_PASSWORD", repr=False)
    """And by what."""
    mail_from: str = Field("books@example.com", validation_alias="BOOKS_MAIL_FROM")
    """Whose name stands on mails."""

    @property
    def smtp_starttls(self) -> bool:
        """Whether mails go out encrypted, to a server whose certificate names it."""
        return self.smtp_tls == "starttls" or (self.smtp_tls is None and not _is_loopback(self.smtp_host))

    @field_validator(*_SECRETS)
    @classmethod
    def _without_blanks_around(cls, value: str) -> str:
        """As in a file, where a line's end is no part of a key. What meets one further in would repeat the key."""
        if not value.strip().isprintable():
            raise ValueError("there is a line's end or another control character in it: take it out")
        return value.strip()

    @field_validator(*_OF_HEADERS)
    @classmethod
    def _fit_for_a_header(cls, value: str) -> str:
        if not value.isascii():
            raise ValueError("give ASCII alone, a header of HTTP can hold nothing else")
        return value

    @field_validator("smtp_user", "smtp_password")
    @classmethod
    def _plain(cls, value: str) -> str:
        if not value.isascii():
            raise ValueError("give ASCII alone, a login by SMTP can send nothing else")
        return value

    @model_validator(mode="after")
    def _a_password_is_whole_and_stays_secret(self) -> Self:
        if bool(self.smtp_user) != bool(self.smtp_password):
            raise ValueError("BOOKS_SMTP_USER and BOOKS_SMTP_PASSWORD: give both, or neither where no login is wanted")
        if self.smtp_password and not self.smtp_starttls and not _is_loopback(self.smtp_host):
            raise ValueError(
                f"BOOKS_SMTP_TLS=none would send BOOKS_SMTP_PASSWORD to {self.smtp_host} readable for everybody on the "
                f"way: leave it out, or take the login away"
            )
        return self


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


@cache
def settings() -> Settings:
    """This process's settings, read once.

    Raises `SettingsInvalid` if the environment cannot be read.
    """
    return Settings.read()
