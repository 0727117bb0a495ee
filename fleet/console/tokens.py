"""Who may use the console: named tokens with a role, of which only SHA-256 digests are kept.

A token is 32 random bytes, so a plain digest of it cannot be searched through. A line a token, `NAME ROLE DIGEST`, in a
file (FLEET_CONSOLE_TOKENS_FILE) or a variable (FLEET_CONSOLE_TOKENS, lines parted by `;`); `#` begins a comment.

Not guaranteed: that a token taken from the file is refused before the console is started again.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from fleet.errors import SettingsInvalid

Role = Literal["read", "operate"]
_LINE = re.compile(r"(?P<name>[\w.@-]{1,64})\s+(?P<role>\w+)\s+(?:sha256:)?(?P<digest>[0-9a-fA-F]{64})")


@dataclass(frozen=True)
class Token:
    """Whose token it is, what it allows, and its SHA-256."""

    name: str
    role: Role
    digest: str


def draw(name: str, role: Role) -> tuple[str, str]:
    """A new token and the line that lets it in."""
    secret = secrets.token_urlsafe(32)
    return secret, f"{name} {role} sha256:{digest_of(secret)}"


def digest_of(secret: str) -> str:
    """The SHA-256 of a token, in hexadecimal."""
    return hashlib.sha256(secret.encode()).hexdigest()


def matching(tokens: Sequence[Token], secret: str) -> Token | None:
    """The token that a secret is; every one is compared, each in constant time."""
    digest, found = digest_of(secret), None
    for token in tokens:
        if hmac.compare_digest(token.digest, digest):
            found = token
    return found


def read(written: str | None, file: Path | None) -> tuple[Token, ...]:
    """The tokens of both settings; raises `SettingsInvalid`, naming the line but never what stands in it."""
    lines = [("FLEET_CONSOLE_TOKENS", number, line) for number, line in enumerate((written or "").split(";"), 1)]
    if file is not None:
        try:
            text = file.read_text()
        except (OSError, ValueError) as error:  # no text, or a path that no file can have
            raise SettingsInvalid(f"FLEET_CONSOLE_TOKENS_FILE: {str(file)!r} cannot be read: {error}.") from None
        lines += [(str(file), number, line) for number, line in enumerate(text.splitlines(), 1)]
    told = [(where, number, line.partition("#")[0].strip()) for where, number, line in lines]
    found = tuple(_token(where, number, line) for where, number, line in told if line)
    _require_unlike(found)
    return found


def _token(where: str, number: int, line: str) -> Token:
    parts = _LINE.fullmatch(line)
    if parts is None or parts["role"] not in get_args(Role):
        raise SettingsInvalid(
            f"{where}, line {number}, is no token: write NAME ROLE sha256:DIGEST, with the role "
            f"{' or '.join(get_args(Role))}. `fleet console token NAME` draws one and prints its line."
        )
    role: Role = "operate" if parts["role"] == "operate" else "read"
    return Token(parts["name"], role, parts["digest"].lower())


def _require_unlike(found: Sequence[Token]) -> None:
    names = [token.name for token in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SettingsInvalid(
            f"FLEET_CONSOLE_TOKENS and its file name two tokens {twice[0]!r}; the audit could not tell them apart. "
            "Name each for one person."
        )
