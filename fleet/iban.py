"""How many characters an IBAN has, by its country, and its checksum; from the registry that SWIFT keeps (ISO 13616)."""

from __future__ import annotations

import re

_REGISTRY = """
AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 ES24 FI18
FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20
LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31
SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30
"""
APART = r"(?:%(?:20|09|0[AaDd]|[Cc]2%[Aa]0)|[\s._+/-]){0,12}"
"""What may stand between two characters of one, also in a URL: an expression."""
_CHARACTERS = re.compile(r"%(?:20|09|0[AaDd]|[Cc]2%[Aa]0)|(?P<one>[A-Za-z0-9])")
_WRITTEN = re.compile(r"(?:[A-Za-z]{2}\d{2}|[A-Z]{2} \d{2}(?= \d{4}))(?:[ .\u00a0\u202f-]?[A-Za-z0-9]){11,32}")
LENGTHS = {one[:2]: int(one[2:]) for one in _REGISTRY.split()}
"""Country -> characters."""


def iban_length(country: str) -> int | None:
    """The length for a country's two letters; None for two letters that are no country with IBANs."""
    return LENGTHS.get(country.upper())


def checked_end(text: str) -> int | None:
    """Where the IBAN ends that a text begins with, whatever stands between its characters, if its checksum holds.

    What is glued to its end is taken for a part of it.
    Two check digits make its characters, the first four last and letters as 10 to 35, 1 modulo 97 (ISO 13616); of other
    texts one in 97.
    """
    wanted, taken = iban_length(text[:2]), ""
    if wanted is None:
        return None
    for character in _CHARACTERS.finditer(text):
        taken += character["one"] or ""
        if len(taken) == wanted:
            number = int("".join(str(int(sign, 36)) for sign in taken[4:] + taken[:4]))
            if sum(map(str.isdigit, taken)) < 8 or number % 97 != 1:
                return None
            return next((at for at in range(character.end(), len(text)) if not text[at].isalnum()), len(text))
    return None


def written_end(text: str) -> int | None:
    """Where the IBAN ends that a text begins with, whatever its checksum, if it is written as one is."""
    match = _WRITTEN.match(text)
    if match is None:
        return None
    found, wanted = match[0], iban_length(text[:2])
    taken, digits = 0, 0
    for number, sign in enumerate(found, start=1):
        taken, digits = taken + sign.isalnum(), digits + sign.isdigit()
        if taken == wanted:
            if digits < 8 or (number < len(found) and found[number].isalnum()):
                break
            return number
    if wanted and digits >= 11 and found[:2].isupper():  # one that is too short, or too long
        return max(number for number, sign in enumerate(found, start=1) if sign.isdigit())
    return None
