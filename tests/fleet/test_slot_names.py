"""How rows of `slots` name entries, so that fleets that share a database never take each other's."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from fleet.storage.slots import entry_of, recorded_as

_NAMES = st.text("ab/:%", max_size=4)
_FLEETS = st.tuples(st.one_of(st.just("dramatiq"), _NAMES), st.one_of(_NAMES, _NAMES.map("dramatiq/".__add__)))


@given(_FLEETS, _FLEETS)
@example(("dramatiq", "a/b"), ("a", "b"))
@example(("a/b", "c"), ("a", "b/c"))
@example(("a/b", "c"), ("a%2Fb", "c"))
def test_no_two_fleets_entries_have_one_name_in_the_table(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (recorded_as(*one) == recorded_as(*other)) == (one == other)
    for (namespace, entry), reader in ((one, one[0]), (other, one[0])):
        assert entry_of(reader, recorded_as(namespace, entry)) == (entry if namespace == reader else None)


def test_the_default_namespaces_rows_are_named_as_they_were_before_fleets_could_share_them() -> None:
    assert recorded_as("dramatiq", "nightly") == "nightly"
    assert recorded_as("books", "nightly") == "books/nightly"
