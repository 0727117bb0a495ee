"""Who is asking: a signed cookie that says name, role and until when; and the token that every form carries.

The key is drawn when the console starts: a restart ends every session, and a second console knows none of the first's.
Without a login (on loopback) everybody is the console's own user and may operate; the cookie then only binds forms.

Not guaranteed: that a stolen cookie is refused; it is HttpOnly, SameSite=Strict, Secure over https, and ends after
twelve hours.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from itsdangerous import BadData, URLSafeTimedSerializer
from starlette.responses import Response

from fleet.audit import own_user
from fleet.console.tokens import Role, Token

COOKIE = "fleet_console"
LASTS = timedelta(hours=12)


@dataclass(frozen=True)
class Visitor:
    """A person behind a request; `session` is what their forms are bound to."""

    name: str
    role: Role
    session: str

    @property
    def operates(self) -> bool:
        """Whether they may change something."""
        return self.role == "operate"


class Sessions:
    """Signs and reads cookies; `login` says whether one has to log in at all."""

    def __init__(self, *, login: bool) -> None:
        self.login = login
        self._key = secrets.token_bytes(32)
        self._signer = URLSafeTimedSerializer(self._key, salt="session")
        self._notes = URLSafeTimedSerializer(self._key, salt="note")

    def of_cookie(self, cookie: str | None) -> Visitor | None:
        """Whose cookie it is; None for one that is missing, forged or over."""
        try:
            told: Any = self._signer.loads(cookie or "", max_age=int(LASTS.total_seconds()))
            name, role, session = told
        except (BadData, ValueError, TypeError):
            return None
        return Visitor(name, role, session)

    def of_token(self, token: Token) -> Visitor:
        """A fresh session of whoever has this token."""
        return Visitor(token.name, token.role, secrets.token_hex(16))

    def local(self) -> Visitor:
        """A fresh session of the console's own user."""
        return Visitor(own_user(), "operate", secrets.token_hex(16))

    def keep(self, response: Response, visitor: Visitor, *, https: bool) -> None:
        """Give the visitor their cookie."""
        value = self._signer.dumps([visitor.name, visitor.role, visitor.session])
        response.set_cookie(
            COOKIE, value, max_age=int(LASTS.total_seconds()), httponly=True, samesite="strict", secure=https, path="/"
        )

    def form_token(self, visitor: Visitor) -> str:
        """What each form of a session carries."""
        return hmac.new(self._key, f"form {visitor.session}".encode(), hashlib.sha256).hexdigest()

    def is_form_token(self, visitor: Visitor, given: str) -> bool:
        """Whether a form came from a page of this session; in constant time."""
        return hmac.compare_digest(self.form_token(visitor).encode(), given.encode())

    def said(self, path: str, text: str) -> str:
        """The address of a page that then says this; signed, so that nobody else can have it say things."""
        return f"{path}{'&' if '?' in path else '?'}{urlencode({'said': self._notes.dumps(text)})}"

    def heard(self, note: str | None) -> str | None:
        """What a page is to say; None for what this console did not sign within the last minute."""
        try:
            return str(self._notes.loads(note or "", max_age=60))
        except BadData:
            return None
