"""A PostgreSQL URL for a person's eyes, and why one cannot be told apart.

SQLAlchemy ends a password at its first `@`, takes the rest for a host, and hides no password among the options, where
libpq takes one too. So a bare `@` in one is refused before anybody parses it, and what is shown is made here. A user
may hold one (`fleet@corp:…@db`): there SQLAlchemy reads what is meant.

Not guaranteed: that a server is there, or takes its options. On failure: of a URL that cannot be told apart nothing is
shown but its scheme, since a password may stand in any part of it.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

_HIGHEST_PORT = 65_535
_HOST = re.compile(r"(?:\[[^\[\]]*\]|[^\[\]:]*)(?::([0-9]{1,5}))?")
_OPTIONS = re.compile(r"\?[^?&=]*=")
_SECRET = re.compile(r"(?:passw|secret|token|(?:client|server)_key)\w*=")  # `passfile` and `sslkey` are paths
_QUOTE = "percent-encode @ : / ? # and % in a user, a password or an option (%40 %3A %2F %3F %23 %25)"


def fault(url: str) -> str | None:
    """What is wrong with the URL, in words that repeat nothing of it; None if its parts can be told apart."""
    login, _, place = url.partition("://")[2].rpartition("@")
    user, _, password = login.partition(":")
    if "@" in password or "/" in user or _OPTIONS.search(login):
        return f"there is a bare @ / or ? in it: {_QUOTE}"
    host = _HOST.fullmatch(re.split("[/?]", place, maxsplit=1)[0])
    if host is None or int(host[1] or 0) > _HIGHEST_PORT:
        return f"its port is no number up to {_HIGHEST_PORT}, or a part of its password stands there: {_QUOTE}"
    return None


def shown(url: str) -> str:
    """The URL with its passwords as stars, also those among its options."""
    scheme, parted, rest = url.partition("://")
    if not parted or fault(url) is not None:
        return f"{scheme if parted else 'postgresql'}://***"
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    where, mark, options = place.partition("?")
    hidden = "&".join(map(_option, options.split("&")))
    return f"{scheme}://{user}{':***' if colon else ''}{at}{where}{mark}{hidden}"


def _option(written: str) -> str:
    return f"{written.partition('=')[0]}=***" if _SECRET.search(unquote_plus(written).lower()) else written
