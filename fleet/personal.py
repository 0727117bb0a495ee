"""Which keys hold something personal, an amount, or a secret, and what an exception's frames show to be such.

A key is judged by its words: `customer_name`, `creditorName` and `remittanceInformationUnstructured` are personal;
`actor_name` and the other names of our own are not. What stands under such a key in a frame of an exception's traceback
is known to be personal wherever else it appears, the exception's text first of all.

Not guaranteed: what stands under a key that says nothing (`text`, `x`), and in no frame. On failure: nothing is raised;
a value that cannot be looked at is passed over.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any, Literal

Kind = Literal["personal", "amount", "secret"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NAMES = _words("""
name names firstname lastname surname forename vorname nachname fullname username initials counterparty customer kunde
kundin payee payer creditor debtor debitor kreditor holder kontoinhaber inhaber empfaenger empfänger recipient absender
contact ansprechpartner person employee mitarbeiter vendor supplier lieferant merchant mandant
""")
_PERSONAL = _NAMES | _words(
    """
    email mail mails phone telefon mobile handy fax address adresse anschrift street strasse straße city ort zip plz
    birthday birthdate geburtsdatum iban bic swift bban kontonummer kto blz pan remittance verwendungszweck purpose memo
    taxid steuernummer steuerid vatid ustid ssn accountnumber cardnumber accountholder
    ocr kwargs
    """
)
# Only as the whole key: `in_body` is a count.
_PERSONAL_ALONE = _words(
    "body content prompt completion payload args arguments params parameters response_body mail_body"
)
_AMOUNTS = _words(
    """
    amount amounts betrag beträge cent cents balance saldo price preis brutto netto gross fee gebühr salary gehalt
    umsatz turnover revenue money summe
    """
)
_SECRETS = _words(
    """
    password passwd pwd passphrase secret secrets apikey accesskey privatekey secretkey authorization cookie cookies
    credential credentials dsn token tokens pin tan cvv cvc csrf signature
    """
)
# Names of ours and of the machinery's.
_OURS = re.compile(
    r"(?:actor|queue|lane|entry|file|host|server|module|class|func|function|logger|log|thread|process|table|column"
    r"|constraint|event|schema|task|tool|metric|monitor|model|step|database|db|user_agent|content_type|content_length)s?_names?"
    r"|content_type|content_length|messaging\..*|hostname|filename|pathname|funcname|max_tokens|total_tokens"
    r"|(?:prompt|completion|input|output)_tokens"
)
_WORDS = re.compile(r"[A-ZÄÖÜ]?[a-zäöüß]+|[A-ZÄÖÜ]+(?![a-zäöüß])|\d+")
_NO_RECORDS = (type, ModuleType, FunctionType, MethodType)
_MACHINERY = (sys.stdlib_module_names - {"__main__", "types", "collections"}) | {
    *("fleet", "beat", "middleware", "dramatiq", "redis", "sqlalchemy", "apscheduler", "structlog", "sentry_sdk"),
}
_PLAIN = re.compile(r"[a-z0-9_.:/@+-]*")  # an identifier, or a word like any other
_MOST_FRAMES, _MOST_ITEMS, _MOST_KNOWN, _DEEPEST, _LONGEST_CHAIN = 40, 60, 400, 3, 6
_LONGEST_KNOWN = 2_000
_MOST_WORDS_OF_A_NAME = 8  # more is prose, whose words are anybody's
_SMALLEST_AMOUNT = 1_000  # cents; a smaller number is as likely a count


@lru_cache(maxsize=4096)
def kind_of(key: str) -> Kind | None:
    """What stands under a key, by the words it is made of; None if it is nothing to hide."""
    if _OURS.fullmatch(key):
        return None
    if key.lower() in _PERSONAL_ALONE:
        return "personal"
    words = [word.lower() for word in _WORDS.findall(key)]
    words += [first + second for first, second in pairwise(words)]
    for kind, known in (("secret", _SECRETS), ("amount", _AMOUNTS), ("personal", _PERSONAL)):
        if not known.isdisjoint(words):
            return kind  # type: ignore[return-value]  # one of the three
    return None


def known_from(error: BaseException | None) -> frozenset[str]:
    """The personal texts and amounts in the frames of an exception and of what it came from."""
    found: set[str] = set()
    seen: set[int] = set()
    while error is not None and id(error) not in seen and len(seen) < _LONGEST_CHAIN:
        seen.add(id(error))
        for frame in _frames(error):
            if str(frame.f_globals.get("__name__")).split(".", 1)[0] in sys.stdlib_module_names:
                continue  # what `threading` calls a name is one of ours
            for key, value in list(frame.f_locals.items()):
                try:
                    _collect(key, value, found, 0)
                except Exception:  # an object that does not want to be looked at
                    continue
        error = error.__cause__ or error.__context__
    return frozenset(found)


def known_under(key: str, value: Any) -> frozenset[str]:
    """The personal texts and amounts of one value, by its key and the keys in it."""
    found: set[str] = set()
    _collect(key, value, found, 0)
    return frozenset(found)


def texts_in(value: Any) -> frozenset[str]:
    """Every text and every larger number in a value, whatever its key."""
    kinds: tuple[Kind, ...] = ("personal", "amount")
    return frozenset(text for one in _leaves(value, 0) for kind in kinds for text in _as_written(kind, "", one))


def _frames(error: BaseException) -> Iterator[FrameType]:
    """The innermost frames of a traceback."""
    frames = []
    traceback = error.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    yield from frames[-_MOST_FRAMES:]


def _collect(key: str, value: Any, found: set[str], depth: int) -> None:
    if len(found) > _MOST_KNOWN or key.startswith("__"):
        return
    kind = kind_of(key)
    if kind is not None:
        for one in _leaves(value, 0):
            found.update(_as_written(kind, key, one))
        return
    if depth >= _DEEPEST:
        return
    if isinstance(value, Decimal):
        found.update(_as_written("amount", key, value))
    elif isinstance(value, Mapping):
        for name, one in list(value.items())[:_MOST_ITEMS]:
            _collect(str(name), one, found, depth + 1)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for one in list(value)[:_MOST_ITEMS]:
            _collect("", one, found, depth + 1)
    elif type(value).__module__.split(".", 1)[0] not in _MACHINERY and not isinstance(value, _NO_RECORDS):
        for name, one in list(getattr(value, "__dict__", {}).items())[:_MOST_ITEMS]:
            _collect(name, one, found, depth + 1)


def _leaves(value: Any, depth: int) -> Iterator[Any]:
    if isinstance(value, Mapping):
        inner = list(value.values())
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = list(value)
    else:
        yield value
        return
    if depth < _DEEPEST:
        for one in inner[:_MOST_ITEMS]:
            yield from _leaves(one, depth + 1)


def _as_written(kind: Kind, key: str, value: Any) -> Iterator[str]:
    """How a value may stand in a text; nothing for what could be any word or any number."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        text = value.strip()
        if 3 <= len(text) <= _LONGEST_KNOWN and not _PLAIN.fullmatch(text):
            yield text
            words = re.split(r"[\s,;]+", text)
            named = kind == "personal" and not _NAMES.isdisjoint(word.lower() for word in _WORDS.findall(key))
            if named and len(words) <= _MOST_WORDS_OF_A_NAME:
                yield from (word for word in words if len(word) >= 4 and word[0].isupper())
    elif kind == "amount" and isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        if isinstance(value, int) and abs(value) < _SMALLEST_AMOUNT:
            return
        yield str(value).lstrip("-")
        whole = abs(value) / 100 if isinstance(value, int) else abs(value)
        english = f"{whole:,.2f}"
        plain = english.replace(",", "")
        yield from (english, plain, plain.replace(".", ","), english.translate(_GERMAN))


_GERMAN = str.maketrans(",.", ".,")
