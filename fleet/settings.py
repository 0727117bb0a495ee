"""The engine's own settings, read from the environment (`FLEET_…`, and what systemd sets).

This module and the application's `config/settings.py`, which extends it, are the only readers of the environment.
Secrets stand in URLs and keys: those fields are kept out of `repr`. Where `FLEET_SECRETS_DIR` names a folder, a file in
it that is named like a variable (in any case of letters) holds that variable's value; the environment goes before it.
"""

from __future__ import annotations

import os
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

from fleet.database_url import fault
from fleet.errors import SettingsInvalid

DEFAULT_NAMESPACE = "dramatiq"  # stock Dramatiq's
LEADER_MARGIN = timedelta(milliseconds=500)  # for what lies between reading the clock and acting on it
_SHORTEST_RENEWAL = timedelta(milliseconds=50)
_PLAIN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|)")
_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


def plain_duration(text: str) -> timedelta | None:
    """`6s`, `500ms`, `1m`, `2h` or a number of seconds; None if it is none of these."""
    plain = _PLAIN.fullmatch(text.strip())
    return timedelta(seconds=float(plain[1]) * _UNITS[plain[2]]) if plain else None


class Settings(BaseSettings):
    """Everything the engine takes from the environment; frozen once read."""

    model_config = SettingsConfigDict(env_prefix="FLEET_", frozen=True, extra="ignore")

    redis_url: str | None = Field(default=None, repr=False)
    """Where Redis or Valkey is: `redis://`, `rediss://`, `unix://`, or Sentinel's; see redis.md."""
    database_url: str | None = Field(default=None, repr=False)
    """Where PostgreSQL is; without one an application keeps no records and slots have no second line."""
    namespace: str = DEFAULT_NAMESPACE
    """What every key in Redis begins with; stock Dramatiq's is the default. Each application wants one of its own."""
    database_pool: int = Field(default=16, ge=1)
    """How many connections to PostgreSQL a process opens at most."""

    clock_origin: datetime | None = None
    """The night instant that a played night begins at; only with the two below."""
    clock_anchor: datetime | None = None
    """The real instant at which that is."""
    clock_rate: float = Field(default=1.0, gt=0)
    """How many night seconds a real second is."""

    leader_ttl: timedelta = timedelta(seconds=6)
    """The term of a leading beat: how long after a kill the next one leads, at the latest."""
    leader_renewal: timedelta = timedelta(seconds=2)
    """How often it is renewed; twice that and half a second must fit into a term."""

    lost_after: timedelta = timedelta(seconds=30)
    """How long a worker process must be silent before others take it for dead."""

    drain: timedelta | None = None
    """What running jobs get after SIGTERM in place of their lane's `drain`, such as where an autoscaler takes pods."""

    parent: int | None = None
    """Whoever starts a process and wants it to end with him puts his process id here."""
    metrics_host: str = "127.0.0.1"
    """The address at which a lane and a beat serve `/metrics`, `/healthz` and `/readyz`."""
    metrics_port: int = Field(default=0, ge=0, le=65535)
    """Its port. 0 is a free one; a probe from outside needs a fixed one."""
    log_format: Literal["console", "json"] = "console"
    """How a line of the log is written: for a terminal, or as JSON."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """From which level on lines are written."""
    sentry_dsn: str | None = Field(default=None, repr=False)
    """Where Sentry is told; nobody is without it."""
    sentry_environment: str = "production"
    """What Sentry calls this fleet's environment."""
    sentry_traces_sample_rate: float = Field(default=0.0, ge=0, le=1)
    """The share of messages that are traced; 0 traces none."""

    payload_keys: Annotated[tuple[str, ...], NoDecode] = Field(default=(), repr=False)
    """Fernet keys with commas between: the first seals what messages carry, all of them open it."""
    payload_seal: bool = True
    """False opens only, while a roll-out has senders whose workers know no key yet."""

    console_host: str = "127.0.0.1"
    """The address of `fleet console`; beyond loopback it wants tokens."""
    console_port: int = Field(default=8310, ge=0, le=65535)
    """Its port."""
    console_tokens: str | None = Field(default=None, repr=False)
    """Who may see it and who may act, by digests of tokens, parted by `;`; see console.md."""
    console_tokens_file: Path | None = None
    """A file with the same, a line a person."""
    console_proxies: str = ""
    """The addresses of proxies, with commas between, that may say what they say of a request."""

    notify_socket: str | None = Field(default=None, validation_alias="NOTIFY_SOCKET")
    """What systemd tells its services: where to say that they are ready."""
    watchdog_usec: int | None = Field(default=None, validation_alias="WATCHDOG_USEC")
    """What systemd tells its services: how often it wants to hear of them."""
    watchdog_pid: int | None = Field(default=None, validation_alias="WATCHDOG_PID")
    """What systemd tells its services: of which process."""

    @field_validator("clock_origin", "clock_anchor")
    @classmethod
    def _aware(cls, value: datetime | None) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("give an instant with its UTC offset, for example 2026-03-02T00:00:00+01:00")
        return value

    @field_validator("payload_keys", mode="before")
    @classmethod
    def _keys(cls, value: Any) -> Any:
        return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value

    @field_validator("leader_ttl", "leader_renewal", "lost_after", "drain", mode="wrap")
    @classmethod
    def _duration(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> timedelta:
        try:
            plain = plain_duration(value) if isinstance(value, str) else None
            duration: timedelta = handler(value if plain is None else plain)
        except (ValidationError, OverflowError):
            raise ValueError(f"{value!r} is no duration; write 6s, 500ms, 1m or PT6S") from None
        return duration

    @field_validator("leader_renewal")
    @classmethod
    def _not_all_the_time(cls, value: timedelta) -> timedelta:
        if value < _SHORTEST_RENEWAL:
            raise ValueError(f"{value} would ask Redis all the time; give {_SHORTEST_RENEWAL} or more, 2s is usual")
        return value

    @field_validator("lost_after")
    @classmethod
    def _longer_than_beats(cls, value: timedelta) -> timedelta:
        if value < timedelta(seconds=3):
            raise ValueError("give at least PT3S: a worker beats once a second, and one late beat is no death")
        return value

    @field_validator("drain")
    @classmethod
    def _some_time(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and value <= timedelta(0):
            raise ValueError("give a time above zero, or leave it out: then each lane's own drain holds")
        return value

    @field_validator("redis_url")
    @classmethod
    def _redis(cls, value: str | None) -> str | None:
        known = ("redis://", "rediss://", "unix://", "redis+sentinel://", "rediss+sentinel://")
        if value is not None and not value.startswith(known):
            raise ValueError("give a URL, for example redis://127.0.0.1:6379/0; docs/redis.md shows every form")
        return value

    @field_validator("database_url")
    @classmethod
    def _postgres(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("postgresql://", "postgresql+", "postgres://")):
            raise ValueError("give a URL, for example postgresql://fleet@127.0.0.1:5432/fleet")
        if value is not None and (found := fault(value)):
            raise ValueError(found)
        return value

    @model_validator(mode="after")
    def _a_term_outlasts_its_renewals(self) -> Self:
        least = 2 * self.leader_renewal + LEADER_MARGIN
        if self.leader_ttl < least:
            raise ValueError(
                f"FLEET_LEADER_TTL {self.leader_ttl} is under twice FLEET_LEADER_RENEWAL {self.leader_renewal} and the "
                f"margin of {LEADER_MARGIN.total_seconds():g} s: one late renewal would end the term. Give a ttl of "
                f"{least} or more, or a shorter renewal"
            )
        return self

    @classmethod
    def read(cls, **values: Any) -> Self:
        """Read the environment.

        Raises `SettingsInvalid` with one line a fault: the variable, what is wrong, never a secret's value.
        """
        folder = os.environ.get("FLEET_SECRETS_DIR")
        if folder and not Path(folder).is_dir():
            raise SettingsInvalid(f"FLEET_SECRETS_DIR is {folder!r}, which is no folder that can be read.")
        try:
            return cls(**{**values, "_secrets_dir": folder})
        except ValidationError as error:
            lines = [
                f"{cls._variable(fault['loc'])}: {fault['msg']}" if fault["loc"] else fault["msg"]
                for fault in error.errors()
            ]
            raise SettingsInvalid("Settings: " + "; ".join(lines)) from None
        except SettingsError as error:  # its words name the field, and neither the file nor what is wrong with it
            raise SettingsInvalid(f"Settings: {cls._unreadable(folder) or error}") from None

    @classmethod
    def _unreadable(cls, folder: str | None) -> str:
        """Each file of `FLEET_SECRETS_DIR` that is named like a variable and cannot be read as text, and why."""
        known = {cls._variable((str(field.validation_alias or name),)) for name, field in cls.model_fields.items()}
        said = []
        for path in sorted(Path(folder).iterdir() if folder else ()):
            try:
                if path.name.upper() in known:
                    path.read_text()
            except (OSError, UnicodeDecodeError) as error:
                said.append(f"{path.name.upper()}: the file {path} cannot be read as text ({type(error).__name__})")
        return "; ".join(said)

    @classmethod
    def _variable(cls, where: tuple[int | str, ...]) -> str:
        """The environment's name of a setting; one with an alias stands in `where` by that alias."""
        name = "_".join(str(part) for part in where)
        return f"{cls.model_config.get('env_prefix', '')}{name}".upper() if where[0] in cls.model_fields else name
