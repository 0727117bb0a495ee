"""The sandbox bank's access and refresh tokens; lifetimes are night durations.

An access token lives 30 minutes instead of the API's 24 hours, so that every night sees tokens expire between two
passes over the banks. Any non-empty pair of secrets is accepted.
"""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Any

ACCESS_LIFETIME = timedelta(minutes=30)
REFRESH_LIFETIME = timedelta(days=30)


class Tokens:
    """Everything issued, with its end."""

    def __init__(self) -> None:
        self._access: dict[str, datetime] = {}
        self._refresh: dict[str, datetime] = {}

    def new(self, secret_id: Any, secret_key: Any, now: datetime) -> dict[str, Any] | None:
        """A pair of tokens, or None for secrets that nobody has."""
        if not all(isinstance(secret, str) and secret for secret in (secret_id, secret_key)):
            return None
        refresh = secrets.token_urlsafe(32)
        self._refresh[refresh] = now + REFRESH_LIFETIME
        lifetime = int(REFRESH_LIFETIME.total_seconds())
        return {**self._issue(now), "refresh": refresh, "refresh_expires": lifetime}

    def refreshed(self, refresh: Any, now: datetime) -> dict[str, Any] | None:
        """A new access token, or None for a refresh token that was not issued or has ended."""
        until = self._refresh.get(refresh) if isinstance(refresh, str) else None
        return None if until is None or until <= now else self._issue(now)

    def valid(self, authorization: str | None, now: datetime) -> bool:
        """Whether the `Authorization` header holds an access token that lives."""
        scheme, _, token = (authorization or "").partition(" ")
        until = self._access.get(token)
        return scheme.lower() == "bearer" and until is not None and now < until

    def _issue(self, now: datetime) -> dict[str, Any]:
        access = secrets.token_urlsafe(32)
        self._access[access] = now + ACCESS_LIFETIME
        return {"access": access, "access_expires": int(ACCESS_LIFETIME.total_seconds())}
