"""`scrub(text)`: a text without what shows by its form to be personal, an amount, or a secret.

Taken out are IBANs (whatever their checksum), mail addresses, phone and card numbers, money, people behind a form of
address, companies before their legal form, tokens and keys, credentials in URLs, literals and parameters of SQL, rows
that PostgreSQL quotes, and what stands behind a key such as `customer=`; all of it also in a `repr` or in JSON, where
escape sequences are in between (`fleet.escapes`). Message ids, instants, `entry@slot`, places in files, durations and
counts stay.

Not guaranteed: a name that nothing around it shows to be one, unless the caller knows it. A text is cut off behind
20,000 characters. On failure: nothing here raises for any text.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from itertools import pairwise

from fleet.escapes import seen_in
from fleet.extents import amount_end, enclosed_end, line_end, value_end
from fleet.iban import APART, checked_end, written_end
from fleet.known import REMOVED, Known
from fleet.personal import Kind, kind_of

LONGEST = 20_000
_BEYOND = 200  # looked at behind the longest text, so that nothing cut in half is left at its end
_SHORT = 100
_LOOKED_AT = 128  # signs of a run, which is seen to be random by then

# Latin, Greek and Cyrillic capitals; Python's expressions have no class for them.
_UPPER = "A-Z" + "".join(chr(code) for code in (*range(0xC0, 0x250), *range(0x386, 0x430)) if chr(code).isupper())

_ALTERNATIVES = {
    # What stays comes first: it is passed over as a whole.
    "id": r"(?<![0-9A-Za-z])[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}(?![0-9a-fA-F])",
    "instant": r"(?<!\d)\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?(?![\d-])",
    "url": r"(?<![A-Za-z0-9])[a-zA-Z][a-zA-Z0-9+.-]{1,20}://(?P<rest>[^\s'\"]{0,1024})",
    "mail": r"(?:mailto:)?[\w.!#$&*+/?^`{|}~-]{1,64}+(?:@|%40)@{0,7}[\w-]{1,63}(?:\.[\w-]{1,63}){0,6}\.[^\W\d_]{2,24}",
    "sql": (
        r"\[SQL:|\[parameters:|\bDETAIL:\s|\bLINE \d+:|Failing row contains|Key \(|\binput_value=|\bparameter \$\d+ ="
    ),
    "quoted": (
        r"(?:could not convert string to \w+: |invalid literal for int\(\) with base \d+: |time data |"
        r"Invalid isoformat string: |invalid input syntax for type [\w ]+: )(?=\\*['\"])"
    ),
    "bearer": r"\b(?:Bearer|Basic|Token)\s+(?=[A-Za-z0-9._~+/=-]{8})",
    "token": (
        r"(?<![A-Za-z0-9])(?:eyJ[\w-]{5,}\.[\w-]+(?:\.[\w-]*)?|(?:sk|pk|rk)_(?:live|test)_\w{8,}|sk-[\w-]{8,}|whsec_\w{8,}"
        r"|gh[pousr]_\w{16,}|github_pat_\w{16,}|xox[abeprs]-[\w-]{8,}|AKIA[0-9A-Z]{12,}|AIza[\w-]{20,}"
        r"|-----BEGIN [A-Z ]{1,40}-----(?:[\s\S]{0,4000}?-----END [A-Z ]{1,40}-----|[\s\S]{0,4000}))"
    ),
    "iban": (
        r"[A-Za-z]{2}(?:\d{2}|(?<=[A-Z]{2})(?<![A-Za-z0-9][A-Z]{2})\s\d{2}(?=\s\d{4}))"
        rf"(?:{APART}[A-Za-z0-9]){{11,34}}"
    ),
    # What begins where an IBAN could is tried with these again.
    "hex": r"(?<![A-Za-z0-9])(?:0x)?[0-9a-fA-F]{32,512}(?![A-Za-z0-9])",
    "base64": r"(?<![A-Za-z0-9])[A-Za-z0-9+/_-]{32,512}={0,2}",
    "card": r"(?<![\w@-])\d{4}(?:(?:-|[^\S\n]{0,12})\d{4}){2}(?:-|[^\S\n]{0,12})\d{1,7}(?![\w-])",
    "phone": r"(?<![\w.])(?:\+\d|00\d{2})(?:(?:[/()-]|[^\S\n]){0,12}\d){7,14}(?![\w:])",
    "money": (
        r"(?<![\w.])(?:(?:[€$£¥]{1,8}|\b(?:EUR|USD|GBP|CHF|Euro|SEK|NOK|DKK|PLN|CZK)\b)\s{0,12}[-−+]?\d(?:[\d.,'’\u202f]{0,18}\d)?k?"
        r"|[-−+]?\d(?:[\d.,'’\u202f]{0,18}\d)?k?\s{0,12}(?:[€£¥$]{1,8}|(?:EUR|USD|GBP|CHF|Euros?|SEK|NOK|DKK|PLN|CZK|[Cc]ents?|TEUR)\b)"
        r"|[-−+]?\d{1,3}(?:[.'’]\d{3}){1,6},\d\d(?!\d)|[-−+]?\d{1,3}(?:[,'’]\d{3}){1,6}\.\d\d(?!\d)"
        r"|[-−+]?\d{1,18},\d\d(?![\d,]))|\bDecimal\('[^']*'\)"
    ),
    "key": r"(?<![\w.$])[A-Za-zÄÖÜäöüß_][\w.-]{0,60}+(?:\\{0,16}[\"'])?[^\S\n]{0,12}[=:][^\S\n]{0,12}\n{0,8}(?![/=])",
    "said": (
        r"\b(?:Betrag|Summe|Saldo|Gesamtbetrag|amount|balance|price|total of)\s{1,12}"
        r"(?:(?:of|von|über)\s{1,12})?(?=[-−+]?\d)"
    ),
    "person": (
        r"\b(?:Herrn?|Frau|Familie|Hr\.|Fr\.|Mrs?\.?|Ms\.?|Miss|Dr\.|Prof\.)(?:\s{1,12}(?:Dr|Prof)\.){0,4}"
        r"(?:\s{1,12}(?:von|van|de|zu|der)){0,2}(?:\s{1,12}[UPPER][\w’'ß-]+){1,3}"
    ),
    "company": (
        r"(?<!\w)[UPPER0-9][\w&.’'-]{0,40}(?:\s{1,12}(?:[UPPER0-9&+][\w&.’'-]{0,40}|und|and|für|der|of)){0,4}\s{1,12}"
        r"(?:GmbH(?:\s?&\s?Co\.?(?:\s?KG)?)?|gGmbH|mbH|AG|UG(?:\s\(haftungsbeschränkt\))?|KGaA|KG|OHG|GbR|e\.\s?K\."
        r"|e\.\s?V\.|eG|Ltd\.?|LLC|LLP|Inc\.?|PLC|plc|Corp\.?|B\.V\.|S\.A\.)(?!\w)"
    ),
}
_NAMES = list(_ALTERNATIVES)


def _any_of(names: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{name}>{_ALTERNATIVES[name]})" for name in names).replace("UPPER", _UPPER))


_ALL = _any_of(_NAMES)


@cache
def _beside_ibans() -> re.Pattern[str]:
    return _any_of(_NAMES[_NAMES.index("iban") + 1 :])


_BEARER = re.compile(r"[A-Za-z0-9._~+/=-]+")
_SQL_LITERAL = re.compile(
    r"(?P<gone>[EBXNebxn]?'(?:[^']|'')*(?:'|$)|(?P<dollar>\$\w*\$).*?(?:(?P=dollar)|$)|(?<![\w$%:.(])[-+]?\d+(?:\.\d+)?\b"
    r"|(?<=\()[-+]?\d+(?:\.\d+)?(?=\s*[,)]))",
    re.DOTALL,
)
_KEY_ENDS = re.compile(r"\) (?:already exists|is not present|is still referenced|conflicts)")
_LONGEST_KEY = 4_000
_AUTHORITY = re.compile(r"[^/?#]*")
_HOSTS = re.compile(r"(?:\[[^\]]*\]|[^:,]*)(?::\d{0,5})?(?:,(?:\[[^\]]*\]|[^:,]*)(?::\d{0,5})?)*")
_QUERY = re.compile(r"[?&][\w.\[\]-]{1,60}=")
_BROWSED = ("http:", "https:", "ws:", "wss:", "ftp:")
_AROUND_A_KEY = " \t\r\n\"'=:\\"
_REPEATED = re.compile(r"([^\x00-\x7f])\1+")
_WORD = re.compile(r"[A-Za-z0-9.-]+")
_PART = re.compile(r"[A-Za-z0-9]*[+/_=-]*")
_SAFE_TOKEN = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?::\d+)?")


def scrub(text: str, known: Known | None = None) -> str:
    """The text without what must not leave, and without what is `known` to be personal."""
    if known is None and len(text) <= _SHORT:
        return _short(text)
    text = text[: LONGEST + _BEYOND]
    if known is not None:
        text = known.taken_out_of(text)
    cleaned = _cleaned(text)
    return cleaned if len(text) <= LONGEST else f"{cleaned[: LONGEST - _BEYOND]} … [cut]"


def scrub_sql(statement: str) -> str:
    """A statement without its literals."""
    statement = statement[:LONGEST]
    parts: list[str] = []
    at = 0
    for literal in _SQL_LITERAL.finditer(seen_in(statement)):
        parts += (statement[at : literal.start()], "?")
        at = literal.end()
    return "".join((*parts, statement[at:]))


def keeps(kind: Kind, value: str) -> bool:
    """Whether what stands under a key may stay: a token of ours, which is an id, does under the key `token`."""
    return kind == "secret" and _SAFE_TOKEN.fullmatch(value.strip("\\'\"")) is not None


@lru_cache(maxsize=8192)
def _short(text: str) -> str:
    return _cleaned(text)


def _cleaned(text: str) -> str:
    parts: list[str] = []
    at, seen = 0, seen_in(text)
    while (match := _ALL.search(seen, at)) is not None:
        start = at
        kept, put, at = _replaced(text, seen, match)
        parts += (text[start:kept], put)
    if not parts:
        return text
    parts.append(text[at:])
    return "".join(parts)


def _replaced(text: str, seen: str, match: re.Match[str]) -> tuple[int, str, int]:
    """Up to where a text stays as it is, what is put there, and where to go on."""
    form, found, end = match.lastgroup or "", match[0], match.end()
    if form in ("id", "instant"):
        return end, "", end
    if form == "key":
        return _behind_key(text, seen, match)
    if form == "sql":
        return _behind_sql(text, seen, found, end)
    if form == "iban":
        return _iban(text, seen, match)
    if form == "url":
        return _url(seen, match)
    if form in ("quoted", "bearer", "said"):
        stop = _behind(form, text, seen, end)
        return (end, REMOVED, stop) if stop is not None else (end, "", end)
    if form == "base64" and not _random(found):
        part = _PART.match(found)
        assert part is not None
        stop = match.start() + part.end()
        return stop, "", stop
    if form == "card" and not _luhn(found):
        return end, "", end
    return match.start(), f"[{_CALLED.get(form, form)}]", end


_CALLED = {"hex": "key", "base64": "key", "token": "key", "money": "amount", "card": "number", "phone": "number"}


def _behind(form: str, text: str, seen: str, at: int) -> int | None:
    """Where ends what stands behind what shows it to be personal; None if nothing does."""
    if form == "quoted":
        return enclosed_end(text, seen, at)
    if form == "said":
        return amount_end(text, seen, at)
    token = _BEARER.match(seen, at)
    return token.end() if token is not None else None


def _behind_key(text: str, seen: str, match: re.Match[str]) -> tuple[int, str, int]:
    key, end = match[0].strip(_AROUND_A_KEY), match.end()
    kind = kind_of(key if seen is text else _REPEATED.sub(r"\1", key))
    if kind is None:
        return end, "", end
    stop = (amount_end if kind == "amount" else value_end)(text, seen, end)
    value = text[end:stop].strip()
    if not value or keeps(kind, value):
        return end, "", end
    return end, REMOVED, stop


def _behind_sql(text: str, seen: str, found: str, end: int) -> tuple[int, str, int]:
    """A value may have line ends in it, which a `repr` around it escapes: it ends where what follows it begins."""
    if found == "[SQL:":
        stop = seen.find("\n[parameters:", end)
        stop = stop if stop >= 0 else seen.find("]\n", end)
        stop = stop if stop >= 0 else len(text)
        return end, scrub_sql(text[end:stop]), stop
    if found == "[parameters:":
        stop = enclosed_end(text, seen, end - len(found)) or len(text)
        return end, f" {REMOVED}", stop - text.endswith("]", end, stop)
    if found.startswith("LINE"):
        stop = line_end(seen, end)
        return end, scrub_sql(text[end:stop]), stop
    if found.startswith("DETAIL"):
        return end, "", end
    if found == "Key (":
        stop = seen.find(")=(", end, line_end(seen, end))
        return (stop + 3, f"{REMOVED})", _closing(text, seen, stop + 3)) if stop >= 0 else (end, "", end)
    if found == "input_value=":
        stop = seen.find(", input_type=", end)
        return end, REMOVED, (stop if stop >= 0 else line_end(text, end))
    stop = seen.find(").\n", end)
    return end, f" {REMOVED}", (stop + 2 if stop >= 0 else line_end(text, end))


def _closing(text: str, seen: str, start: int) -> int:
    """Behind the last bracket that closes before a sentence of PostgreSQL's goes on, else the line's end."""
    found = _KEY_ENDS.search(seen, start, start + _LONGEST_KEY)
    return found.start() + 1 if found is not None else line_end(text, start)


def _url(seen: str, match: re.Match[str]) -> tuple[int, str, int]:
    """Of a URL with credentials all up to its last `@`, whatever signs they hold; behind its query's begin none counts.

    One without has a host, perhaps with a port, before its first `/`, `?` or `#`. Where a port could as well be the
    begin of a password, and an `@` follows, it is one, but not in what a browser opens.
    """
    start, whole = match.start("rest"), match["rest"]
    authority = _AUTHORITY.match(whole)
    assert authority is not None
    host, begins = authority.end(), max(whole.find("@"), 0)
    if "@" not in authority[0] and _HOSTS.fullmatch(authority[0]):
        if ":" not in authority[0] or match[0].lower().startswith(_BROWSED):
            return start + host, "", start + host
        begins = 0
    query = _QUERY.search(whole, begins)
    last = whole.rfind("@", 0, query.start() if query else len(whole))
    if last < 0:
        return start + host, "", start + host
    return start, "[credentials]", start + last


def _iban(text: str, seen: str, match: re.Match[str]) -> tuple[int, str, int]:
    """Of what may be an IBAN, as many characters as its country's have; what is none may be something else."""
    found, start = match[0], match.start()
    end = checked_end(found)
    if end is not None:
        return start, "[iban]", start + end
    if start == 0 or not seen[start - 1].isalnum() or not seen[start - 1].isascii():
        end = written_end(found)
        if end is not None:
            return start, "[iban]", start + end
        word = _WORD.match(found)
        if word is not None and _random(word[0]):
            return start, "[key]", start + word.end()
        other = _beside_ibans().match(seen, start)
        if other is not None:
            return _replaced(text, seen, other)
    return start + 1, "", start + 1


def _random(text: str) -> bool:
    """Whether a long run of letters and digits is no word of anybody's: it changes its kind of sign all the time."""
    signs = text[:_LOOKED_AT]
    kinds = ["d" if sign.isdigit() else "u" if sign.isupper() else "l" for sign in signs if sign.isalnum()]
    changes = sum(one != other for one, other in pairwise(kinds))
    return len(kinds) >= 24 and len(set(kinds)) == 3 and changes > len(kinds) / 4


def _luhn(text: str) -> bool:
    digits = [int(sign) for sign in reversed(text) if sign.isdigit()]
    doubled = (sum(divmod(2 * digit, 10)) if odd % 2 else digit for odd, digit in enumerate(digits))
    return 13 <= len(digits) <= 19 and sum(doubled) % 10 == 0
