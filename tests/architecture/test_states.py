"""Every status is explained in one line where it is defined, and the page of diagrams says the same."""

from __future__ import annotations

import pytest

from tests.architecture.states import PAGE, defined, drawn

DEFINED = defined()


def test_there_are_statuses_to_look_at() -> None:
    assert len(DEFINED) >= 6
    assert set(drawn()) == set(DEFINED), f"{PAGE.name} draws other enums than the models define"


@pytest.mark.parametrize("name", DEFINED)
def test_every_status_has_its_line_where_it_is_defined(name: str) -> None:
    bare = [status for status, line in DEFINED[name].items() if not line]
    assert not bare, f"{name}: no line beside {', '.join(bare)}"


@pytest.mark.parametrize("name", DEFINED)
def test_the_page_says_of_each_status_what_the_source_says(name: str) -> None:
    assert drawn()[name].meanings == DEFINED[name], f"the table of {name} in {PAGE.name} differs from the source"


@pytest.mark.parametrize("name", DEFINED)
def test_the_diagram_draws_every_status_and_no_other(name: str) -> None:
    page = drawn()[name]
    reached = {end for _, end in page.arrows}
    assert reached == set(DEFINED[name])
    assert {begin for begin, _ in page.arrows} - {None} <= reached


@pytest.mark.parametrize("name", [name for name, lines in DEFINED.items() if "running" in lines])
def test_every_running_row_can_end(name: str) -> None:
    page = drawn()[name]
    out = {end for begin, end in page.arrows if begin == "running"}
    ended = set(DEFINED[name]) - {begin for begin, _ in page.arrows}
    assert out & (ended | {"failed"})
    assert len(out) >= 3
