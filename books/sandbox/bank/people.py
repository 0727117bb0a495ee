"""Names and dealings that German-looking accounts are made of; invented, none is meant to be a real company."""

from __future__ import annotations

from typing import NamedTuple

FIRST_NAMES = ("Anke", "Bülent", "Carla", "Detlef", "Elif", "Frauke", "Gerrit", "Henrike", "Ioannis", "Jördis", "Malte")
SURNAMES = (
    "Ahlers", "Bäumler", "Cordes", "Dörflinger", "Eggebrecht", "Finkbeiner", "Großmann", "Hüttenrauch", "Jäger",
    "Kowalski", "Löwenthal", "Mühlbauer", "Nagel", "Öztürk", "Pfeiffer", "Rautenberg", "Schäfer", "Tietjen",
    "Überschär", "Vogelsang", "Weißgerber", "Yıldız", "Zöllner",
)  # fmt: skip
TRADES = (
    "Tischlerei", "Bäckerei", "Praxis Dr.", "Kanzlei", "Elektro", "Malerbetrieb", "Gasthof", "Buchhandlung",
    "Gartenbau", "Spedition", "Architekturbüro", "Steuerberatung", "Druckerei", "Metallbau",
)  # fmt: skip
COMPANY_FORMS = ("GmbH", "e.K.", "GmbH & Co. KG", "UG (haftungsbeschränkt)", "GbR", "OHG")


class Dealing(NamedTuple):
    """A kind of transaction: how often, from or to whom, what it says, and its median amount in cents (in > 0)."""

    weight: int
    counterparty: str
    remittance: str
    median_cents: int


# {trade}, {surname}, {form}, {number} and {month} are filled in
DEALINGS = (
    Dealing(22, "{trade} {surname} {form}", "Rechnung RE-{number} vom {month}", -31_900),
    Dealing(20, "{trade} {surname} {form}", "RE {number} Kd-Nr. 40{number} Danke für Ihren Auftrag", 84_500),
    Dealing(12, "{surname} Lebensmittelmarkt", "KARTENZAHLUNG {number} {month}", -4_280),
    Dealing(8, "Tankhof {surname}", "Tankstelle Nr. {number} Super E10", -7_150),
    Dealing(6, "Stadtwerke Musterstadt AG", "Abschlag Strom/Gas Vertrag {number} {month}", -18_400),
    Dealing(5, "Hausverwaltung {surname} {form}", "Miete {month} Objekt {number}", -124_000),
    Dealing(5, "Bundesknappschaft Minijob", "SV-Beiträge {month} BetrNr {number}", -23_800),
    Dealing(4, "Finanzamt Musterstadt", "USt-VA {month} StNr {number}", -142_000),
    Dealing(4, "Fernnetz Telekommunikation GmbH", "Rechnung {month} Kundenkonto {number}", -4_995),
    Dealing(4, "Bürobedarf {surname} {form}", "Bestellung {number} Papier, Toner", -8_640),
    Dealing(3, "Allsicher Versicherung AG", "Betriebshaftpflicht Police {number}", -21_700),
    Dealing(3, "{surname}", "Lohn/Gehalt {month}", -241_000),
    Dealing(2, "Wolkenhaus Hosting GmbH", "Server und Domains {month} Nr. {number}", -2_990),
    Dealing(1, "Kontor Digital", "Kontoführung {month}", -990),
    Dealing(1, "Reisebüro {surname} {form}", "Bahn/Hotel Buchung {number}", -32_600),
)
