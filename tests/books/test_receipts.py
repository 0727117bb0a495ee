"""The sandbox's receipts: the same for a seed, true, readable; and what the sandbox's model makes of their words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from books.documents import read
from books.sandbox.receipt_text import read_fields
from books.sandbox.receipts import Receipt, draw, draw_broken


def score(receipts: list[Receipt]) -> dict[str, tuple[int, int, list[str]]]:
    """By method: fields read right, fields in all, and a line for each that was wrong."""
    scores: dict[str, tuple[int, int, list[str]]] = {}
    for receipt in receipts:
        document = read(receipt.path)
        found = read_fields(document.text)
        wrong = [f"{receipt.path.name}: {k} is {v}, read {found[k]}" for k, v in receipt.truth.items() if found[k] != v]
        right, of, lines = scores.get(document.method, (0, 0, []))
        scores[document.method] = right + len(receipt.truth) - len(wrong), of + len(receipt.truth), lines + wrong
    return scores


@pytest.mark.timeout(120)
@pytest.mark.parametrize("ocr", [6, pytest.param(12, marks=pytest.mark.soak)])
def test_forty_receipts_are_read_and_nearly_every_field_is_right(tmp_path: Path, ocr: int) -> None:
    scores = score(draw(seed=11, folder=tmp_path, ocr=ocr))
    right, of, wrong = scores["text layer"]
    assert of == (40 - ocr) * 5
    assert right >= 0.98 * of, wrong
    right, of, wrong = scores["ocr"]
    assert of == ocr * 5
    assert right >= 0.90 * of, wrong


def test_text_layers_of_many_seeds_are_read_right(tmp_path: Path) -> None:
    receipts = [one for seed in range(8) for one in draw(seed=seed, folder=tmp_path / str(seed), ocr=0)]
    right, of, wrong = score(receipts)["text layer"]
    assert of == 8 * 40 * 5
    assert right >= 0.98 * of, wrong


def test_the_same_seed_draws_the_same_bytes_and_another_draws_others(tmp_path: Path) -> None:
    drawn = [draw(seed, tmp_path / name, count=9, ocr=4) for name, seed in (("a", 5), ("b", 5), ("c", 6))]
    first, again, other = ([(r.path.name, r.path.read_bytes(), r.truth) for r in receipts] for receipts in drawn)
    assert first == again
    assert first != other


def test_the_mix_has_every_layout_in_both_languages_and_the_truth_beside_each(tmp_path: Path) -> None:
    receipts = draw(seed=3, folder=tmp_path)
    assert len({receipt.path for receipt in receipts}) == 40
    assert len({receipt.path.stem[3:] for receipt in receipts}) == 8
    assert {receipt.path.suffix for receipt in receipts} == {".pdf", ".png", ".jpg"}
    for receipt in receipts:
        assert json.loads(receipt.path.with_suffix(".truth.json").read_text(encoding="utf-8")) == receipt.truth


def test_the_broken_two_are_a_web_page_and_nothing(tmp_path: Path) -> None:
    page, empty = draw_broken(tmp_path)
    assert page.suffix == ".pdf"
    assert page.read_bytes().startswith(b"<html")
    assert empty.suffix == ".png"
    assert empty.stat().st_size == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Quittung\nBlumen Jung e.K.\nMarkt 1\nRosen  15,00 A\nZwischensumme  15,00\nSumme inkl. MwSt  1.015,00\n"
            "darin 19,0% MwSt  162,06\nBar  1.020,00\nRückgeld  5,00\n3. März 2026",
            ("Blumen Jung e.K.", "2026-03-03", "1015.00", "162.06", None),
        ),
        (
            "Rechnung Nr. 2026-01-17  Holzbau Kern GmbH\nFällig am 14.02.2026\nRechnungsdatum\n31.01.2026\n"
            "Netto  100,00 €\nzzgl. 19 % USt  19,00 €\nZu zahlen\n119,00 €",
            ("Holzbau Kern GmbH", "2026-01-31", "119.00", "19.00", "EUR"),
        ),
        (
            "The Tea Room\nVAT Reg No 123 4567 89\n05/04/2026 12:30\nScones  £8.40\nSubtotal  £8.40\n"
            "Tip  £1.00\nTOTAL  £9.40",
            ("The Tea Room", "2026-04-05", "9.40", None, "GBP"),
        ),
        (
            "Joe's Diner LLC\n04/05/2026\nBurger  $10.00\nSales tax 8.5%  $0.85\nTotal  $10.85\nVISA  $10.85",
            ("Joe's Diner LLC", "2026-04-05", "10.85", "0.85", "USD"),
        ),
    ],
)
def test_fields_are_found_by_a_receipts_words_in_layouts_of_others(text: str, expected: tuple[str | None, ...]) -> None:
    found = read_fields(text)
    assert tuple(found[name] for name in ("merchant", "date", "gross", "vat", "currency")) == expected


@pytest.mark.parametrize("text", ["", "\n\n", "99.99.9999", "Total", "%%%", "VAT 0% 0,00\nTotal 0,00"])
def test_a_text_that_is_no_receipt_gives_nothing_and_raises_nothing(text: str) -> None:
    assert set(read_fields(text)) == {"merchant", "date", "gross", "vat", "currency"}
