"""`scrub(text)`: a text without what shows by its form to be personal, an amount, or a secret.

Taken out are IBANs (whatever their checksum), mail addresses, phone and card numbers, money, people behind a form of
address, companies before their legal form, tokens and keys, credentials in URLs, literals and parameters of SQL, rows
that PostgreSQL quotes, and what stands behind a key such as `customer=`. Message ids, instants, `entry@slot`, places in
files, durations and counts stay.

Not guaranteed: a name that nothing around it shows to be one, unless the caller knows it. A text is cut off behind
20,000 characters. On failure: nothing here raises for any text.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from itertools import pairwise

from fleet.iban import iban_length
from fleet.personal import Kind, kind_of

LONGEST = 20_000
_BEYOND = 200  # looked at behind the longest text, so that nothing cut in half is left at its end
_SHORT = 100

# Latin, Greek and Cyrillic capitals; Python's expressions have no class for them.
_UPPER = "A-Z" + "".join(chr(code) for code in (*range(0xC0, 0x250), *range(0x386, 0x430)) if chr(code).isupper())

_ALTERNATIVES = {
    # What stays comes first: it is passed over as a whole.
    "id": r"(?<![0-9A-Za-z])[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}(?![0-9a-fA-F])",
    "instant": r"(?<!\d)\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?(?![\d-])",
    "url": r"(?<![A-Za-z0-9])[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s'\"<>/?#]{0,512}",
    "mail": r"(?:mailto:)?[\w.!#$&*+/?^`{|}~-]{1,64}(?:@|%40)[\w-]{1,63}(?:\.[\w-]{1,63}){0,6}\.[^\W\d_]{2,24}",
    "sql": (
        r"\[SQL:|\[parameters:|\bDETAIL:\s|\bLINE \d+:|Failing row contains|Key \(|\binput_value=|\bparameter \$\d+ ="
    ),
    "quoted": (
        r"(?:could not convert string to \w+: |invalid literal for int\(\) with base \d+: |time data |"
        r"Invalid isoformat string: |invalid input syntax for type [\w ]+: )(?=['\"])"
    ),
    "bearer": r"\b(?:Bearer|Basic|Token)\s+(?=[A-Za-z0-9._~+/=-]{8})",
    "token": (
        r"(?<![A-Za-z0-9])(?:eyJ[\w-]{5,}\.[\w-]+(?:\.[\w-]*)?|(?:sk|pk|rk)_(?:live|test)_\w{8,}|sk-[\w-]{8,}|whsec_\w{8,}"
        r"|gh[pousr]_\w{16,}|github_pat_\w{16,}|xox[abeprs]-[\w-]{8,}|AKIA[0-9A-Z]{12,}|AIza[\w-]{20,}"
        r"|-----BEGIN [A-Z ]+-----[\s\S]{0,4000}?(?:-----END [A-Z ]+-----|$))"
    ),
    "iban": r"(?<![A-Za-z0-9])(?:[A-Za-z]{2}\d{2}|[A-Z]{2} \d{2}(?= \d{4}))(?:[ .\u00a0\u202f-]?[A-Za-z0-9]){11,32}",
    "hex": r"(?<![A-Za-z0-9])(?:0x)?[0-9a-fA-F]{32,512}(?![A-Za-z0-9])",
    "base64": r"(?<![A-Za-z0-9])[A-Za-z0-9+/_-]{32,512}={0,2}",
    "card": r"(?<![\w@-])\d{4}(?:[ -]?\d{4}){2}[ -]?\d{1,7}(?![\w-])",
    "phone": r"(?<![\w.])(?:\+|00)\d{2}[ /()-]{0,2}\d[\d /()-]{5,16}\d(?![\w:])",
    "money": (
        r"(?<![\w.])(?:(?:[€$£¥]|\b(?:EUR|USD|GBP|CHF|Euro|SEK|NOK|DKK|PLN|CZK)\b)\s?[-−+]?\d(?:[\d.,'’\u202f]{0,18}\d)?k?"
        r"|[-−+]?\d(?:[\d.,'’\u202f]{0,18}\d)?k?\s?(?:[€£¥$]|(?:EUR|USD|GBP|CHF|Euros?|SEK|NOK|DKK|PLN|CZK|[Cc]ents?|TEUR)\b)"
        r"|[-−+]?\d{1,3}(?:[.'’]\d{3})+,\d\d(?!\d)|[-−+]?\d{1,3}(?:[,'’]\d{3})+\.\d\d(?!\d)"
        r"|[-−+]?\d+,\d\d(?![\d,]))|\bDecimal\('[^']*'\)"
    ),
    "key": r"(?<![\w.$])[\"']?[A-Za-zÄÖÜäöüß_][\wÄÖÜäöüß.-]{0,60}[\"']?(?:\s?=\s?|:\s?)(?![/=])",
    "said": r"\b(?:Betrag|Summe|Saldo|Gesamtbetrag|amount|balance|price|total of)\s(?:of\s|von\s|über\s)?(?=[-−+]?\d)",
    "person": (
        r"\b(?:Herrn?|Frau|Familie|Hr\.|Fr\.|Mrs?\.?|Ms\.?|Miss|Dr\.|Prof\.)(?:\s(?:Dr|Prof)\.)*"
        r"(?:\s(?:von|van|de|zu|der)){0,2}(?:\s[UPPER][\w’'ß-]+){1,3}"
    ),
    "company": (
        r"(?<!\w)[UPPER0-9][\w&.’'-]{0,40}(?:\s(?:[UPPER0-9&+][\w&.’'-]{0,40}|und|and|für|der|of)){0,4}\s"
        r"(?:GmbH(?:\s?&\s?Co\.?(?:\s?KG)?)?|gGmbH|mbH|AG|UG(?:\s\(haftungsbeschränkt\))?|KGaA|KG|OHG|GbR|e\.\s?K\."
        r"|e\.\s?V\.|eG|Ltd\.?|LLC|LLP|Inc\.?|PLC|plc|Corp\.?|B\.V\.|S\.A\.)(?!\w)"
    ),
}
_ALL = re.compile("|".join(f"(?P<{name}>{form})" for name, form in _ALTERNATIVES.items()).replace("UPPER", _UPPER))
_VALUE = re.compile(
    r"[A-Za-z_]{0,12}'(?:[^'\\\n]|\\.)*'|[A-Za-z_]{0,12}\"(?:[^\"\\\n]|\\.)*\"|\[[^\]\n]*\]|\{[^}\n]*\}"
    r"|(?:[\w.]+)?\([^)\n]*\)|(?:(?!\s+[\w.]+\s?[=:]|&[\w.]+=|\s[-–—]\s|\.\s)[^,;)\]}|\n\"']){0,120}"
)
_AMOUNT = re.compile(r"[-−+]?[\d.,'’\u202f]*\d|(?:[\w.]+)?\([^)\n]*\)|'[^'\n]*'|\"[^\"\n]*\"")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_BEARER = re.compile(r"[A-Za-z0-9._~+/=-]+")
_SQL_LITERAL = re.compile(
    r"(?P<gone>[EBXNebxn]?'(?:[^']|'')*(?:'|$)|(?P<dollar>\$\w*\$).*?(?:(?P=dollar)|$)|(?<![\w$%:.(])[-+]?\d+(?:\.\d+)?\b"
    r"|(?<=\()[-+]?\d+(?:\.\d+)?(?=\s*[,)]))",
    re.DOTALL,
)
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")
_PART = re.compile(r"[A-Za-z0-9]*[+/_=-]*")
_SAFE_TOKEN = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?::\d+)?")
REMOVED = "[removed]"


class Known:
    """Texts that are known to be personal; an expression is made of them when the first text has one."""

    def __init__(self, texts: Collection[str]) -> None:
        forms = {form for one in texts for form in (one, repr(one)[1:-1], one.upper()) if form}
        self._longest_first = sorted(forms, key=len, reverse=True)
        self._pattern: re.Pattern[str] | None = None

    def taken_out_of(self, text: str) -> str:
        """The text without these, where they stand as words of their own, also as in a `repr` or in capitals."""
        if self._pattern is None:
            if not any(form in text for form in self._longest_first):
                return text
            self._pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, self._longest_first))})(?!\w)")
        return self._pattern.sub(REMOVED, text)


def knowing(texts: Collection[str]) -> Known | None:
    """What is known by these texts; None if there are none."""
    return Known(texts) if texts else None


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
    return _SQL_LITERAL.sub("?", statement[:LONGEST])


def keeps(kind: Kind, value: str) -> bool:
    """Whether what stands under a key may stay: a token of ours, which is an id, does under the key `token`."""
    return kind == "secret" and _SAFE_TOKEN.fullmatch(value.strip("'\"")) is not None


@lru_cache(maxsize=8192)
def _short(text: str) -> str:
    return _cleaned(text)


def _cleaned(text: str) -> str:
    parts, at = [], 0
    while (match := _ALL.search(text, at)) is not None:
        parts.append(text[at : match.start()])
        kept, at = _replaced(text, match)
        parts.append(kept)
    if not parts:
        return text
    parts.append(text[at:])
    return "".join(parts)


def _replaced(text: str, match: re.Match[str]) -> tuple[str, int]:
    """What stands for a match, and where to go on."""
    form, found, end = match.lastgroup or "", match[0], match.end()
    if form in ("id", "instant"):
        return found, end
    if form == "key":
        return _behind_key(text, found, end)
    if form == "sql":
        return _behind_sql(text, found, end)
    if form == "iban":
        return _iban(text, match)
    if form in ("quoted", "bearer", "said"):
        value = {"quoted": _QUOTED, "bearer": _BEARER, "said": _AMOUNT}[form].match(text, end)
        return (f"{found}{REMOVED}", value.end()) if value else (found, end)
    if form == "url":
        return _CREDENTIALS.sub("[credentials]@", found), end
    if form == "base64" and not _random(found):
        part = _PART.match(found)
        assert part is not None
        return part[0], match.start() + part.end()
    if form == "card" and not _luhn(found):
        return found, end
    return f"[{_CALLED.get(form, form)}]", end


_CALLED = {"hex": "key", "base64": "key", "token": "key", "money": "amount", "card": "number", "phone": "number"}


def _behind_key(text: str, found: str, end: int) -> tuple[str, int]:
    kind = kind_of(found.strip("\"'=: "))
    if kind is None:
        return found, end
    value = (_AMOUNT if kind == "amount" else _VALUE).match(text, end)
    if value is None or not value[0].strip() or keeps(kind, value[0].strip()):
        return found, end
    return f"{found}{REMOVED}", value.end()


def _behind_sql(text: str, found: str, end: int) -> tuple[str, int]:
    line = text.find("\n", end)
    line = len(text) if line < 0 else line
    if found == "[SQL:":
        stop = text.find("\n[parameters:", end)
        stop = stop if stop >= 0 else text.find("]\n", end)
        stop = stop if stop >= 0 else len(text)
        return f"{found}{scrub_sql(text[end:stop])}", stop
    if found.startswith("LINE"):
        return f"{found}{scrub_sql(text[end:line])}", line
    if found.startswith("DETAIL"):
        return found, end
    if found == "Key (":
        stop = text.find(")=(", end, line)
        return (f"{found}{text[end:stop]})=({REMOVED})", _closing(text, stop + 3, line)) if stop >= 0 else (found, end)
    if found == "input_value=":
        stop = text.find(", input_type=", end)
        return f"{found}{REMOVED}", (stop if stop >= 0 else line)
    return f"{found} {REMOVED}", line


def _closing(text: str, start: int, line: int) -> int:
    """Behind the last bracket that closes before a sentence of PostgreSQL's goes on, else the line's end."""
    for ending in (") already exists", ") is not present", ") is still referenced", ") conflicts"):
        stop = text.find(ending, start, line)
        if stop >= 0:
            return stop + 1
    return line


def _iban(text: str, match: re.Match[str]) -> tuple[str, int]:
    """Of what may be an IBAN, as many characters as its country's have; what is none stays."""
    found = match[0]
    wanted, taken, digits = iban_length(found[:2]), 0, 0
    for number, sign in enumerate(found, start=1):
        taken, digits = taken + sign.isalnum(), digits + sign.isdigit()
        if taken == wanted:
            if digits < 8 or (number < len(found) and found[number].isalnum()):
                break
            return "[iban]", match.start() + number
    if wanted and digits >= 11 and found[:2].isupper():  # one that is too short, or too long
        last = max(number for number, sign in enumerate(found, start=1) if sign.isdigit())
        return "[iban]", match.start() + last
    if _random(found.split(" ")[0]):
        return "[key]", match.start() + len(found.split(" ")[0])
    head = re.match(r"\w+[ .-]?|.", found)
    assert head is not None
    return head[0], match.start() + head.end()


def _random(text: str) -> bool:
    """Whether a long run of letters and digits is no word of anybody's: it changes its kind of sign all the time."""
    kinds = ["d" if sign.isdigit() else "u" if sign.isupper() else "l" for sign in text if sign.isalnum()]
    changes = sum(one != other for one, other in pairwise(kinds))
    return len(kinds) >= 24 and len(set(kinds)) == 3 and changes > len(kinds) / 4


def _luhn(text: str) -> bool:
    digits = [int(sign) for sign in reversed(text) if sign.isdigit()]
    doubled = (sum(divmod(2 * digit, 10)) if odd % 2 else digit for odd, digit in enumerate(digits))
    return 13 <= len(digits) <= 19 and sum(doubled) % 10 == 0
