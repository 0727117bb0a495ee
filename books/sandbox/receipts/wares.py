"""Invented merchants, what they sell, and where: the words on the sandbox's receipts. No such business is meant."""

from __future__ import annotations

Ware = tuple[str, int, int, int]  # its name, its lowest and highest price in cents, its VAT rate in per cent

# fmt: off
MONTHS: dict[bool, tuple[str, ...]] = {  # the key says whether German
    True: (
        "Januar", "Februar", "März", "April", "Mai", "Juni",
        "Juli", "August", "September", "Oktober", "November", "Dezember",
    ),
    False: (
        "January", "February", "March", "April", "May", "June",
        "July", "August", "September", "October", "November", "December",
    ),
}
# fmt: on

CITIES: dict[bool, tuple[tuple[str, str, str], ...]] = {  # street, city, VAT number
    True: (
        ("Königstraße 17", "70173 Stuttgart", "USt-IdNr. DE811223344"),
        ("Am Mühlbach 3", "04109 Leipzig", "USt-IdNr. DE299887766"),
        ("Bahnhofstr. 210", "24103 Kiel", "Steuernummer 20/815/04711"),
    ),
    False: (
        ("17 Castle Street", "Bristol BS1 4QT", "VAT Reg No GB 123 4567 89"),
        ("210 Station Road", "York YO1 7HH", "VAT No 987 6543 21"),
        ("3 Mill Lane", "Norwich NR2 1AA", "VAT Registration GB 555 0100 77"),
    ),
}

WARES: dict[tuple[str, bool], tuple[tuple[str, ...], tuple[Ware, ...]]] = {
    ("till", True): (
        ("Frischemarkt Müller", "Kaufhof am Ring GmbH", "Biomarkt Löwenzahn KG"),
        (
            ("Vollmilch 1,5%", 99, 149, 7),
            ("Roggenbrot 750g", 249, 429, 7),
            ("Äpfel Elstar", 179, 399, 7),
            ("Butter", 199, 299, 7),
            ("Spülmittel", 129, 349, 19),
            ("Druckerpapier", 399, 699, 19),
            ("Batterien AA", 499, 899, 19),
            ("Kaffee 500g", 599, 999, 7),
        ),
    ),
    ("till", False): (
        ("Greenfield Foods", "Corner Market Ltd", "Hilltop Grocers"),
        (
            ("Whole milk 2L", 145, 189, 0),
            ("Sourdough loaf", 275, 425, 0),
            ("Printer paper", 450, 750, 20),
            ("Washing up liquid", 120, 310, 20),
            ("AA batteries", 499, 899, 20),
            ("Cheddar 400g", 299, 525, 0),
            ("Sparkling water", 65, 110, 20),
        ),
    ),
    ("restaurant", True): (
        ("Gasthaus Zum Löwen", "Trattoria Bella Vista", "Wirtshaus Grüne Au"),
        (
            ("Wiener Schnitzel", 1690, 2390, 19),
            ("Käsespätzle", 1190, 1490, 19),
            ("Apfelschorle", 340, 490, 19),
            ("Espresso", 220, 320, 19),
            ("Tagessuppe", 490, 690, 19),
            ("Weißbier 0,5", 420, 560, 19),
        ),
    ),
    ("restaurant", False): (
        ("The Copper Kettle", "Harbour Kitchen", "Old Mill Bistro"),
        (
            ("Fish and chips", 1450, 1895, 20),
            ("Soup of the day", 595, 795, 20),
            ("Lemonade", 295, 395, 20),
            ("Flat white", 310, 390, 20),
            ("Sticky pudding", 695, 850, 20),
            ("House salad", 750, 995, 20),
        ),
    ),
    ("fuel", True): (("Tankstelle Nordring", "Autohof Weber GmbH", "Freie Tankstelle Süd"), ()),
    ("fuel", False): (("Northway Fuels Ltd", "Roadside Services", "Kestrel Filling Station"), ()),
    ("invoice", True): (
        ("Büro & Technik Schröder GmbH", "Werbeagentur Blickfang", "Malerbetrieb Hübner e.K."),
        (
            ("Beratung je Stunde", 8000, 14500, 19),
            ("Druck Broschüre", 350, 990, 19),
            ("Wartung Server", 12000, 39000, 19),
            ("Anfahrt", 2500, 4900, 19),
            ("Bürostuhl", 18900, 42000, 19),
        ),
    ),
    ("invoice", False): (
        ("Brightwell Consulting Ltd", "Fenwick Office Supplies", "Larch Design Limited"),
        (
            ("Consulting per hour", 7500, 16000, 20),
            ("Brochure print", 350, 990, 20),
            ("Server maintenance", 12000, 39000, 20),
            ("Call-out charge", 2500, 4900, 20),
            ("Office chair", 18900, 42000, 20),
        ),
    ),
}
