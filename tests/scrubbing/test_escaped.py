"""What stands behind an escape sequence, in other forms of JSON, in brackets or behind an open quote, by example."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from fleet.extents import value_end
from fleet.known import knowing
from fleet.logs import brief
from fleet.patterns import LONGEST
from fleet.scrubbing import scrub, scrub_event, scrub_sql, scrub_values, shown
from tests.scrubbing.payloads import payloads
from tests.scrubbing.search import found_in, missing_from

ROW = "bad row:\nDE89370400440532013000\tHerr Max Mustermann\t+49 170 1234567"
HIDDEN = r"ValueError('bad row:\n[iban]\t[person]\t[number]')"
IBAN = "DE89 3704 0044 0532 0130 00"

GONE = {
    # escape sequences
    "a\\xa0+49\\xa0170\\xa01234567": "a\\xa0[number]",
    "\\u00a01.234,56\\u00a0\\u20ac or \\n12,50 EUR": "\\u00a0[amount] or \\n[amount]",
    "\\n4111 1111 1111 1111\\t4111111111111111": "\\n[number]\\t[number]",
    "\\r\\nsk-proj-abcDEF1234567890": "\\r\\n[key]",
    "\\n9f86d081884c7d659a2feaa0c55ad015": "\\n[key]",
    "\\nerika@example.de": "\\n[mail]",
    "Herr J\\u00fcrgen M\\u00fcller und \\u015aliwi\\u0144ska GmbH": "[person] und [company]",
    '{"empf\\u00e4nger": "x", "page": 2}': '{"empf\\u00e4nger": [removed], "page": 2}',
    "\\nDE89\\xa03704\\u202f0044\\n0532\\t0130 00 z": "\\n[iban] z",
    # JSON of others, and in JSON
    '{"debtorName" : "Erika", "page" : 2}': '{"debtorName" : [removed], "page" : 2}',
    '{\\"debtorName\\": \\"E \\\\\\"M\\\\\\" F\\", \\"page\\": 2}': '{\\"debtorName\\": [removed], \\"page\\": 2}',
    '{"names" : [\n  "Erika",\n  "Max"\n],\n"page": 2}': '{"names" : [removed],\n"page": 2}',
    "amounts=[123456, 99] rows=2": "amounts=[removed] rows=2",
    # brackets
    "args=(('DE', 1), 'Max Mustermann') rows=3": "args=[removed] rows=3",
    "args=('x)', [{'a': \"]\"}, (2,)], 'Max') rows=3": "args=[removed] rows=3",
    "args=('DE', (1, 2 rows=3\nnext": "args=[removed]\nnext",
    # quotes
    'name="Max': "name=[removed]",
    "customer='Erika Mus\nnext": "customer=[removed]\nnext",
    "customer='Erika, of customer='Max', rows=3\nnext": "customer=[removed]\nnext",
    "customer='O'Hara', rows=3": "customer=[removed], rows=3",
    "customer='O''Hara', rows=3": "customer=[removed], rows=3",
    "customer='O\\'Hara', rows=3": "customer=[removed], rows=3",
    "customer=Gwen O'Hara, rows=3": "customer=[removed], rows=3",
    # what PostgreSQL and SQLAlchemy quote
    "[parameters: ('Erika\\nM', 3)]\\n(Background": "[parameters: [removed]]\\n(Background",
    "Key (n)=(Erika\\nM) already exists.\\nx": "Key (n)=([removed]) already exists.\\nx",
    "Failing row contains (3, Erika\nM).\nx": "Failing row contains [removed]\nx",
    "Failing row contains (3, Erika\\nM).": "Failing row contains [removed]",
    # credentials
    "postgresql+psycopg://fleet:aB/3xyz@db:5432/books": "postgresql+psycopg://[credentials]@db:5432/books",
    "redis://:s3cr#t@h and redis://:a?b@h": "redis://[credentials]@h and redis://[credentials]@h",
    "postgresql://fleet:12/34@db/x": "postgresql://[credentials]@db/x",
    "http://user:p@ss@host/x": "http://[credentials]@host/x",
    "https://u:p@host/x?to=e@x.de&page=2": "https://[credentials]@host/x?to=[mail]&page=2",
    "https://host:8443/x?to=e@x.de&page=2": "https://host:8443/x?to=[mail]&page=2",
    "https://host/x?to=e@x.de&page=2": "https://host/x?to=[mail]&page=2",
    "dsn=postgresql://a:b;c,d@h/x next": "dsn=[removed] next",
    # IBANs
    f"IBAN{IBAN} x": "IBAN[iban] x",
    "iban_DE89370400440532013000": "iban_[iban]",
    "ibande89370400440532013000x": "iban[iban]",
    IBAN.replace(" ", "\t"): "[iban]",
    IBAN.replace(" ", "\n"): "[iban]",
    IBAN.replace(" ", "_"): "[iban]",
    f"q={IBAN.replace(' ', '%20')}&page=2": "q=[iban]&page=2",
    f"ab12{'0123456789abcd' * 2}": "[key]",
}
KEPT = [
    "C:\\new\\table\\users in C:\\temp",
    "message\\n123e4567-e89b-42d3-a456-426614174000:17\\t2026-03-02T04:00:00+00:00\\nqueue transaction_sync",
    "https://medium.example/@user/post and redis://[::1]:6379/0 and postgresql://h1:5432,h2:5433/db",
    "lane_de12 of gb22 2026-03-02 04:00:00, xx12 files of at12 in no14",
    "KeyError : 'page' in queue : books",
]


@pytest.mark.parametrize("text", GONE)
def test_what_a_review_found_in_texts_is_taken_out(text: str) -> None:
    assert scrub(text) == GONE[text]
    assert scrub(GONE[text]) == GONE[text], "a second pass changes nothing"


@pytest.mark.parametrize("text", KEPT)
def test_what_only_looks_like_it_stays(text: str) -> None:
    assert scrub(text) == text


def test_the_repr_of_an_exception_is_clean_wherever_it_stands_and_however_often_it_is_escaped() -> None:
    error = ValueError(ROW)
    assert shown(error) == scrub(repr(error)) == HIDDEN
    assert scrub(repr(repr(error))) == repr(HIDDEN)
    assert scrub_values({"error": repr(error)}) == {"error": HIDDEN}
    told = {"values": [{"message": repr(error), "data": {"seen": repr(error)}}]}
    frame: dict[str, Any] = {"vars": {"text": repr(error)}}
    event = scrub_event(
        {
            "message": repr(error),
            "extra": {"seen": repr(error), "all": [repr(repr(error))]},
            "breadcrumbs": told,
            "exception": {"values": [{"type": "X", "value": repr(error), "stacktrace": {"frames": [frame]}}]},
        },
        {},
    )
    for piece in ("DE89", "Mustermann", "1234567"):
        assert piece not in json.dumps(event)
    assert event["extra"]["seen"] == event["message"] == event["breadcrumbs"]["values"][0]["data"]["seen"] == HIDDEN


def test_a_line_scrubs_an_error_before_it_cuts_it() -> None:
    for at in range(260, 300, 3):
        said = brief(ValueError("x" * at + " DE89370400440532013000"))
        assert len(said) <= 300 and "DE8" not in said


@pytest.mark.parametrize("written", [str, repr, ascii, json.dumps, lambda text: repr(repr(text))])
def test_what_is_known_is_found_however_it_is_escaped(written: Callable[[str], str]) -> None:
    known = knowing({"Änne Özdemir", 'Café "Süd"', "two\nlines"})
    text = scrub(written('row\nÄnne Özdemir\tÄNNE ÖZDEMIR\rCafé "Süd"\ntwo\nlines\t3'), known)
    assert text.count("[removed]") == 4
    assert not {"nne", "zdemir", "Caf", "lines"} & set(text.replace("\\", " ").split())
    assert "zdemir" not in text and "ZDEMIR" not in text and "Caf" not in text and "lines" not in text


def test_a_statement_loses_its_literals_behind_escaped_line_ends_too() -> None:
    assert scrub_sql("VALUES (\\n17,\\t'Erika',\\n18)") == "VALUES (\\n?,\\t?,\\n?)"


def test_of_postings_in_reprs_and_json_nothing_is_left_and_every_id_is() -> None:
    for one in payloads(150, 20_261_132):
        told = repr(ValueError(one.texts[0]))
        ways = (one.texts[0], told, repr(told), json.dumps({"said": [told, *one.texts]}), ascii(one.texts[1]))
        for text in (*ways, json.dumps({"a": json.dumps({"b": one.texts[2]})})):
            assert found_in(scrub(text), [one]) == []
            assert missing_from(scrub(text), [one]) == []


@pytest.mark.parametrize(
    "hostile",
    [
        *("\\", "\\'", "'", '"', "([{", ")]}", "name='", "name=(", "name=(\n", "name= ", "name\\\\\\'", "a b="),
        *(
            "de12_",
            "DE89 3704 ",
            "a://:",
            "a://:@",
            "a?b=",
            "12,5",
            "1.",
            "+49 ",
            "-----BEGIN A-----",
            "\\u00fc",
            "Key (",
        ),
    ],
)
def test_a_text_takes_a_time_that_grows_with_its_length_only(hostile: str) -> None:
    def seconds(length: int) -> float:
        text = (hostile * length)[:length]
        began = time.process_time()
        scrub(text, knowing({"Änne Özdemir"}))
        value_end(text, text, 0)
        return time.process_time() - began

    assert min(seconds(LONGEST) for _ in range(2)) < 16 * min(seconds(LONGEST // 4) for _ in range(3)) + 0.05
    assert seconds(100_000) < 5
