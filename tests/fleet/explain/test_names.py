"""What a name means: several things, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet import Entry
from fleet.app import App
from fleet.explain import NothingNamed, explain
from tests.fleet.explain.conftest import HOUR, LANE, House


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("bank", "Did you mean the lane banks"),
        ("nihgtly", "Did you mean the entry nightly"),
        ("job", "It is an actor; `fleet jobs` shows its budget, `fleet explain banks` its lane"),
        ("zzzzzz", "Give the id of a message or a run"),
    ],
)
def test_an_unknown_name_is_answered_with_what_was_meant_of_any_kind(house: House, wanted: str, hint: str) -> None:
    with pytest.raises(NothingNamed, match="no lane, entry, message or run") as raised:
        explain(house.app, house.broker, wanted)
    assert hint in str(raised.value)


def test_a_name_that_means_two_things_is_explained_as_both(house: House) -> None:
    app = App(
        Path(),
        house.app.actors,
        (LANE,),
        (Entry("banks", every=HOUR, expires=HOUR, because="a bank opens", actor="job"),),
    )
    assert [one.kind for one in explain(app, house.broker, "banks")] == ["lane", "entry"]
