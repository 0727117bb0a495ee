"""The layouts of the sandbox's receipts: till slip, restaurant, fuel station, A4 invoice; each German and English.

A layout places texts on a sheet and says what is true of it. Amounts add up as they do on paper: VAT is contained in
the prices (slips) or added to them (invoice), rounded half up for each rate. Nothing is said of a real business.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal
from random import Random

from books.sandbox.receipts.sheet import A4, Printed, Sheet
from books.sandbox.receipts.wares import CITIES, MONTHS, WARES

Layout = Callable[[Random, bool], Printed]
_CENT = Decimal("0.01")
_FIRST_DAY = date(2026, 1, 2)


def till_slip(rng: Random, german: bool) -> Printed:
    """A supermarket's: two rates, with a table of them at the foot in German."""
    sheet, day = Sheet(width=270), _day(rng)
    merchant, sold = _head(sheet, rng, "till", german)
    for name, price, rate in sold:
        sheet.line(name, f"{_money(price, german)} {'A' if rate > 10 else 'B'}")
    gross = sum((price for _, price, _ in sold), Decimal(0))
    sheet.gap()
    sheet.line("SUMME EUR" if german else "TOTAL GBP", _money(gross, german), size=13)
    if rng.random() < 0.5:
        given = (gross // 10 + 1) * 10
        sheet.line("Bar EUR" if german else "Cash", _money(given, german))
        sheet.line("Rückgeld EUR" if german else "Change", _money(given - gross, german))
    else:
        sheet.line("Kartenzahlung" if german else "Card payment", _money(gross, german))
    sheet.gap()
    rates = {
        rate: sum((price for _, price, of in sold if of == rate), Decimal(0)) for rate in sorted({s[2] for s in sold})
    }
    taxes = {rate: _contained(amount, rate) for rate, amount in rates.items()}
    if german:
        sheet.columns((-18, "MwSt"), (130, "Netto"), (190, "Steuer"), (252, "Brutto"), size=9)
    for rate, amount in rates.items():
        tax = taxes[rate]
        if german:
            cells = (130, _money(amount - tax, True)), (190, _money(tax, True)), (252, _money(amount, True))
            sheet.columns((-18, f"{'A' if rate > 10 else 'B'} {rate},0%"), *cells, size=9)
        else:
            sheet.line(f"VAT {rate}.00% included", _money(tax, german), size=9)
    sheet.gap()
    sheet.line(
        f"{_date(day, german, rng)} {rng.randint(8, 20)}:{rng.randint(10, 59)}", f"Bon {rng.randint(1000, 9999)}"
    )
    sheet.line("Vielen Dank für Ihren Einkauf!" if german else "Thank you for shopping with us")
    sheet.cut()
    return Printed(sheet, merchant, day.isoformat(), gross, sum(taxes.values(), Decimal(0)), "EUR" if german else "GBP")


def restaurant(rng: Random, german: bool) -> Printed:
    """A restaurant's: one rate; a quarter come from a small business that shows no VAT."""
    sheet, day = Sheet(width=290), _day(rng)
    merchant, sold = _head(sheet, rng, "restaurant", german)
    symbol, currency = ("€", "EUR") if german or rng.random() < 0.3 else ("£", "GBP")
    sheet.line("Tisch 12" if german else "Table 7", f"{'Datum' if german else 'Date'}: {_date(day, german, rng)}")
    sheet.gap()
    gross = Decimal(0)
    for name, price, _ in sold:
        pieces = rng.randint(1, 3)
        gross += price * pieces
        sheet.line(f"{pieces} x {name}", _money(price * pieces, german))
    sheet.gap()
    sheet.line("Gesamtbetrag" if german else "Total to pay", _priced(gross, symbol, german), size=13)
    rate = 19 if german else 20
    vat = None if rng.random() < 0.25 else _contained(gross, rate)
    if vat is not None:
        words = f"enthaltene MwSt {rate}%" if german else f"Including VAT at {rate}%"
        sheet.line(words, _priced(vat, symbol, german), size=9)
    elif german:
        sheet.line("Umsatzsteuerfrei gemäß § 19 UStG", size=9)
    sheet.gap()
    sheet.line("Es bediente Sie: Jörg" if german else "You were served by Alice", size=9)
    sheet.cut()
    return Printed(sheet, merchant, day.isoformat(), gross, vat, currency)


def fuel_station(rng: Random, german: bool) -> Printed:
    """A fuel station's: one product, a unit price of three decimals, net and VAT beside the total."""
    sheet, day = Sheet(width=260), _day(rng)
    currency, rate = ("EUR", 19) if german else ("GBP", 20)
    merchant, _ = _head(sheet, rng, "fuel", german)
    sheet.line(
        f"{'Datum' if german else 'Date'} {_date(day, german, rng)}", f"{rng.randint(6, 22):02}:{rng.randint(0, 59):02}"
    )
    sheet.line(f"{'Beleg-Nr.' if german else 'Receipt no.'} {rng.randint(10000, 99999)}")
    sheet.gap()
    litres, price = Decimal(rng.randint(1500, 6000)) / 100, Decimal(rng.randint(1450, 1950)) / 1000
    gross = (litres * price).quantize(_CENT, ROUND_HALF_UP)
    comma = str.maketrans(".", ",") if german else {}
    sheet.line(
        ("Zapfsäule " if german else "Pump ") + str(rng.randint(1, 8)), rng.choice(("Diesel", "Super E10", "Super"))
    )
    sheet.line("Menge" if german else "Volume", f"{litres:.2f} {'Liter' if german else 'litres'}".translate(comma))
    sheet.line("Preis je Liter" if german else "Price per litre", f"{price:.3f} {currency}".translate(comma))
    sheet.gap()
    vat = _contained(gross, rate)
    sheet.line("Gesamt" if german else "Total", f"{_money(gross, german)} {currency}", size=14)
    sheet.line("Netto" if german else "Net", f"{_money(gross - vat, german)} {currency}")
    sheet.line(f"{'MwSt' if german else 'VAT'} {rate} %", f"{_money(vat, german)} {currency}")
    sheet.gap()
    sheet.line("Gute Fahrt!" if german else "Drive safely!")
    sheet.cut()
    return Printed(sheet, merchant, day.isoformat(), gross, vat, currency)


def invoice(rng: Random, german: bool) -> Printed:
    """An A4 invoice: sender above recipient, a table, VAT added below, a due date that is not the invoice's."""
    sheet, day = Sheet(A4[0], A4[1], margin=50, y=60), _day(rng)
    symbol, currency, rate = ("€", "EUR", 19) if german else ("£", "GBP", 20)
    merchant, sold = _head(sheet, rng, "invoice", german, size=18)
    sheet.gap(30)
    for text in (
        ("Kanzlei Grünwald & Söhne", "Lindenweg 4", "80331 München")
        if german
        else ("Orchard & Sons", "4 Elm Row", "Leeds")
    ):
        sheet.line(text, size=11)
    sheet.gap(24)
    sheet.line("Rechnung" if german else "Invoice", size=20)
    sheet.line(f"{'Rechnungsnummer' if german else 'Invoice number'}: {rng.randint(2026001, 2026999)}", size=11)
    sheet.line(f"{'Rechnungsdatum' if german else 'Invoice date'}: {_date(day, german, rng)}", size=11)
    due = _date(day + timedelta(days=14), german, rng)
    sheet.line(f"{'Zahlbar bis' if german else 'Due date'}: {due}", size=11)
    sheet.gap(20)
    head = (
        ("Leistung", "Menge", "Einzelpreis", "Betrag")
        if german
        else ("Description", "Quantity", "Unit price", "Amount")
    )
    sheet.columns((-50, head[0]), (340, head[1]), (440, head[2]), (545, head[3]), size=11)
    net = Decimal(0)
    for name, price, _ in sold:
        pieces = rng.randint(1, 12)
        net += price * pieces
        cells = (340, str(pieces)), (440, _money(price, german)), (545, _money(price * pieces, german))
        sheet.columns((-50, name), *cells, size=11)
    vat = (net * rate / 100).quantize(_CENT, ROUND_HALF_UP)
    sheet.gap(16)
    sheet.line("Nettobetrag" if german else "Subtotal", _priced(net, symbol, german), size=11)
    sheet.line(f"{'Umsatzsteuer' if german else 'VAT'} {rate} %", _priced(vat, symbol, german), size=11)
    sheet.line("Rechnungsbetrag" if german else "Total due", _priced(net + vat, symbol, german), size=13)
    return Printed(sheet, merchant, day.isoformat(), net + vat, vat, currency)


LAYOUTS: tuple[Layout, ...] = (till_slip, restaurant, fuel_station, invoice)


def _head(
    sheet: Sheet, rng: Random, trade: str, german: bool, size: float = 15
) -> tuple[str, list[tuple[str, Decimal, int]]]:
    """Print name, address and VAT number; returns the name and three to eight wares of the trade."""
    merchants, wares = WARES[trade, german]
    merchant, (street, city, number) = rng.choice(merchants), rng.choice(CITIES[german])
    sheet.line(merchant, size=size)
    for text in (street, city, number):
        sheet.line(text, size=9)
    sheet.gap()
    sold = rng.sample(wares, k=min(len(wares), rng.randint(3, 8)))
    prices = (Decimal(rng.randint(low, high)) / 100 for _, low, high, _ in sold)
    return merchant, [(name, price, rate) for (name, _, _, rate), price in zip(sold, prices, strict=True)]


def _day(rng: Random) -> date:
    return _FIRST_DAY + timedelta(days=rng.randint(0, 300))


def _date(day: date, german: bool, rng: Random) -> str:
    if german:
        return rng.choice((f"{day:%d.%m.%Y}", f"{day.day}. {MONTHS[german][day.month - 1]} {day.year}"))
    return rng.choice((day.isoformat(), f"{day.day} {MONTHS[german][day.month - 1][:3]} {day.year}", f"{day:%d/%m/%Y}"))


def _money(amount: Decimal, german: bool) -> str:
    text = f"{amount:,.2f}"
    return text.translate(str.maketrans(",.", ".,")) if german else text


def _priced(amount: Decimal, symbol: str, german: bool) -> str:
    return f"{_money(amount, german)} {symbol}" if german else f"{symbol}{_money(amount, german)}"


def _contained(gross: Decimal, rate: int) -> Decimal:
    return (gross * rate / (100 + rate)).quantize(_CENT, ROUND_HALF_UP)
