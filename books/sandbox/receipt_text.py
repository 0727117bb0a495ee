"""Reads merchant, date, gross, VAT and currency from a receipt's text by its words, as the sandbox's model answers.

It knows the words receipts use (Summe, Gesamt, Total, MwSt, VAT, ...), German and English, and no layout of ours.

Not guaranteed: that a find is right. A field whose words are not there is None; nothing raises, whatever the text.
Of several VAT rates the amounts are added up. A date in digits and slashes is read day first, except in dollars.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from decimal import Decimal

_AMOUNT = re.compile(r"(?<![\d.,])(\d{1,3}(?:[.,'’]\d{3})+|\d{1,6}) ?[.,] ?(\d{2})(?![\d%]|[.,]\d| ?%)")
_PERCENT = re.compile(r"\b(\d{1,2})(?:[.,](\d{1,2}))? ?%")
_GROSS = (  # from the strongest word for a total to the weakest
    re.compile(
        r"rechnungsbetrag|gesamtbetrag|endbetrag|zahlbetrag|zu zahlen|\bto pay|grand total|total incl", re.IGNORECASE
    ),
    re.compile(r"(amount|total|balance) ?(due|payable)", re.IGNORECASE),
    re.compile(r"\bsumme|\bgesamt|\btotal|\bbrutto|\bgross", re.IGNORECASE),
    re.compile(r"\bbetrag|\bamount|kartenzahlung|girocard|\bec[- ]karte|\bvisa\b|\bcard\b|\bpaid", re.IGNORECASE),
)
_NOT_GROSS = re.compile(
    r"zwischensumme|sub-? ?total|\bnett?o?\b|nettobetrag|r(ü|ue|u)ckgeld|\bchange\b|\bwechselgeld|gegeben|tendered"
    r"|einzelpreis|unit price|\bpfand|rabatt|discount|saving|gespart|\btip\b|trinkgeld",
    re.IGNORECASE,
)
_VAT = re.compile(
    r"mw[s5]t|mehrwertsteuer|\bu[s5]t\b|umsatzsteuer|\bvat\b|\bsales tax\b|\btax\b|\bsteuer\b",
    re.IGNORECASE,
)
_VAT_NUMBER = re.compile(
    r"id-?\.? ?nr|steuernummer|steuer-?nr|vat (reg|no|id|number|registration)|\btax (id|no)\b",
    re.IGNORECASE,
)
_INCLUDED = re.compile(
    r"(in[ck]l\w*\.?|including) ?(of )?(\d+([.,]\d+)? ?% ?)?(mw[s5]t|u[s5]t|vat|tax|steuer)",
    re.IGNORECASE,
)
_CURRENCY = (
    ("EUR", r"€|eur(?![a-z])|\beuros?\b"),
    ("GBP", r"£|gbp(?![a-z])|\bpounds?\b"),
    ("USD", r"\$|usd(?![a-z])|\bdollars?\b"),
)
_MONTH_NAMES = "jan|feb|mar mär mae mrz|apr|may mai|jun|jul|aug|sep|oct okt|nov|dec dez"
_MONTHS = {name: number for number, names in enumerate(_MONTH_NAMES.split("|"), start=1) for name in names.split()}
_ISO = re.compile(r"(?<!\d)(20\d{2}) ?- ?(\d{2}) ?- ?(\d{2})(?!\d)")
_DIGITS = re.compile(r"(?<!\d)(\d{1,2}) ?([./-]) ?(\d{1,2}) ?\2 ?(20\d{2}|\d{2}(?!\d))")
_WORDS = re.compile(r"(?<!\d)(\d{1,2})(?:st|nd|rd|th|\.)? ?([A-Za-zä]{3,9})\.?,? ?(20\d{2})")
_WORD = re.compile(r"[^\W\d_]{4}")
_DATED = re.compile(r"datum|\bdate|\bvom\b", re.IGNORECASE)
_OTHER_DATE = re.compile(
    r"f(ä|ae|a)llig|\bdue\b|zahlbar|lieferdatum|leistung|delivery|valid|g(ü|ue|u)ltig|bis zum",
    re.IGNORECASE,
)
_TITLE = re.compile(
    r"^(rechnung|invoice|tax invoice|quittung|receipt|beleg|kassenbon|kassenbeleg|bewirtungsbeleg|kundenbeleg|bill"
    r"|vat receipt|sales receipt|herzlich|willkommen|welcome|thank|vielen dank|ihr einkauf|kopie|copy|duplicate)\b",
    re.IGNORECASE,
)
_LEGAL_FORM = re.compile(
    r"\b(gmbh|ltd|limited|kg|ag|ohg|ug|e\. ?k\.|gbr|inc|llc|plc|llp)(?!\w)",
    re.IGNORECASE,
)
_HEAD = 5  # lines at the top in which a merchant's name with its legal form is looked for


def read_fields(text: str) -> dict[str, str | None]:
    """Merchant, date (ISO), gross and vat (decimal strings such as "12.34"), currency ("EUR", "GBP", "USD").

    Every key is there; a field that was not found is None.
    """
    lines = [stripped for line in text.splitlines() if (stripped := line.strip())]
    currency = _currency(text)
    gross = _gross(lines)
    vat = _vat(lines, gross)
    found = _date(lines, month_first=currency == "USD")
    return {
        "merchant": _merchant(lines),
        "date": found.isoformat() if found else None,
        "gross": None if gross is None else f"{gross:.2f}",
        "vat": None if vat is None else f"{vat:.2f}",
        "currency": currency,
    }


def _currency(text: str) -> str | None:
    counted = {code: len(re.findall(words, text, re.IGNORECASE)) for code, words in _CURRENCY}
    best = max(counted, key=lambda code: counted[code])
    return best if counted[best] else None


def _amounts(line: str) -> list[Decimal]:
    return [Decimal(re.sub(r"\D", "", whole) + "." + cents) for whole, cents in _AMOUNT.findall(line)]


def _gross(lines: list[str]) -> Decimal | None:
    """The amount beside the strongest word for a total; of equals the largest, since a total tops its parts."""
    ranked = [(rank, amount) for line, rank in _totals(lines) for amount in (max(_amounts(line)),)]
    if ranked:
        return max(ranked)[1]
    amounts = [amount for line in lines for amount in _amounts(line)]
    return max(amounts, default=None)


def _totals(lines: list[str]) -> Iterator[tuple[str, int]]:
    """Lines that hold a word for a total and an amount, which may stand alone on the line below, with their rank."""
    for line, below in zip(lines, [*lines[1:], ""], strict=False):
        if _NOT_GROSS.search(line) or _VAT.search(_INCLUDED.sub("", line)):
            continue
        rank = next((-place for place, words in enumerate(_GROSS) if words.search(line)), None)
        if rank is None:
            continue
        if _amounts(line):
            yield line, rank
        elif _amounts(below) and not _WORD.search(below):
            yield below, rank


def _vat(lines: list[str], gross: Decimal | None) -> Decimal | None:
    """The VAT: a line that calls itself the total of it, else the sum over the rates."""
    by_rate: dict[Decimal | None, Decimal] = {}
    for line, below in zip(lines, [*lines[1:], ""], strict=False):
        if _VAT_NUMBER.search(line) or not _is_vat(line, gross):
            continue
        rate = _rate(line)
        amounts = _amounts(line)
        if not amounts and not _WORD.search(below):
            amounts = _amounts(below)
        part = _vat_among(amounts, rate, gross)
        if part is None:
            continue
        if rate is None and re.search(r"summe|total|gesamt", line, re.IGNORECASE):
            return part
        by_rate[rate] = part
    rated = [part for rate, part in by_rate.items() if rate is not None]
    return sum(rated, Decimal(0)) if rated else by_rate.get(None)


def _is_vat(line: str, gross: Decimal | None) -> bool:
    """Whether a line is about the tax, and not about a total that merely includes it."""
    if _is_table_row(line) or _VAT.search(_INCLUDED.sub("", line)):
        return True
    amounts = _amounts(line)
    return bool(_INCLUDED.search(line)) and len(amounts) == 1 and amounts != [gross]


def _is_table_row(line: str) -> bool:
    """A row of a VAT table: a rate with net, tax and gross, whose words stand in the table's head only."""
    amounts = _amounts(line)
    return _rate(line) is not None and len(amounts) == 3 and max(amounts) * 2 == sum(amounts)


def _rate(line: str) -> Decimal | None:
    match = _PERCENT.search(line)
    return Decimal(f"{match[1]}.{match[2] or 0}").normalize() if match else None


def _vat_among(amounts: list[Decimal], rate: Decimal | None, gross: Decimal | None) -> Decimal | None:
    """Which of a line's amounts is the tax: the one that its rate takes from another, else the smallest."""
    if rate:
        for base in [*amounts, *([] if gross is None else [gross])]:
            taxes = (base * rate / 100, base * rate / (100 + rate))
            for part in amounts:
                if part != base and any(abs(part - tax) <= Decimal("0.02") for tax in taxes):
                    return part
    return min(amounts, default=None)


def _date(lines: list[str], *, month_first: bool) -> date | None:
    """The date on a line that says it is one; else the first that is not a due or delivery date."""
    first: date | None = None
    for above, line in zip(["", *lines[:-1]], lines, strict=False):
        found = _date_in(line, month_first=month_first)
        if found is None or (_OTHER_DATE.search(line) and not _DATED.search(_OTHER_DATE.sub("", line))):
            continue
        if _DATED.search(line) or (_DATED.search(above) and _date_in(above, month_first=month_first) is None):
            return found
        first = first or found
    return first


def _date_in(line: str, *, month_first: bool) -> date | None:
    if match := _ISO.search(line):
        return _valid(match[1], match[2], match[3])
    if match := _DIGITS.search(line):
        day, month = (match[3], match[1]) if match[2] == "/" and month_first else (match[1], match[3])
        year = match[4] if len(match[4]) == 4 else f"20{match[4]}"
        return _valid(year, month, day) or _valid(year, day, month)
    for match in _WORDS.finditer(line):
        number = _MONTHS.get(match[2][:3].lower())
        if number:
            return _valid(match[3], str(number), match[1])
    return None


def _valid(year: str, month: str, day: str) -> date | None:
    try:
        return date(int(year), int(month), int(day))
    except ValueError:
        return None


def _merchant(lines: list[str]) -> str | None:
    """The first name at the top with a legal form; else the first cell that reads like a name and is no title."""
    cells = [cell.strip(" *-=_|") for line in lines[:_HEAD] for cell in re.split(r"\s{2,}|\t", line)]
    names = [cell for cell in cells if len(re.findall(r"[^\W\d_]", cell)) >= 3 and not _TITLE.match(cell)]
    return next(
        (name for name in names if _LEGAL_FORM.search(name)),
        names[0] if names else None,
    )
