"""`fleet check` on elastic entries: each contradiction is one line that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fleet.conftest import Fleet, WriteApp

ENTRY = """
from dataclasses import replace
from datetime import time
from fleet import Elastic
from fleet.quota import Quota
def night(name="greet", cron="0 4 * * *", every=None, expires=timedelta(hours=2), tz="Europe/Berlin", **more):
    elastic = {
        "window": (time(0, 30), time(6, 15)), "day": time(6, 30), "slot": time(4), "backlog": "actors.greetings:left",
        "chunk": 10, "cap": 1, "because": "banks have closed their day, and offices open later", **more,
    }
    return entry(name, cron=cron, every=every, expires=expires, tz=tz, elastic=Elastic(**elastic))
"""
LEFT = "def left(): return 0\n"


def findings(fleet: Fleet, write_app: WriteApp, schedule: str) -> list[str]:
    root: Path = write_app(actors=LEFT)
    (root / "config" / "schedule.py").write_text(
        (root / "config" / "schedule.py").read_text().replace("SCHEDULE = []", f"{ENTRY}\nSCHEDULE = [{schedule}]")
    )
    done = fleet(root, "check")
    assert "Traceback" not in done.stderr
    return done.stderr.removeprefix("fleet: ").splitlines()


def test_an_elastic_entry_in_order_is_found_in_order(fleet: Fleet, write_app: WriteApp) -> None:
    assert findings(fleet, write_app, "night()") == []


@pytest.mark.parametrize(
    ("entry", "finding"),
    [
        ("night(backlog='actors.greetings:lef')", "actors.greetings has no function 'lef' that counts. Did you mean"),
        ("night(backlog='actors.greeting:left')", "there is no module 'actors.greeting'"),
        ("night(cron='0 5 * * *')", "its cron '0 5 * * *' comes at 05:00, and its elastic slot is 04:00"),
        ("night(cron='0 */4 * * *')", "comes at 00:00, 04:00, 08:00, 12:00, 16:00, 20:00, and its"),
        (
            "night(cron=None, every=SECOND * 7200)",
            "an elastic entry has one slot a night: give cron= instead of every=",
        ),
        (
            "night(expires=timedelta(hours=5))",
            "after its night has closed, at 08:00, when it begins nothing: give 4:00",
        ),
        ("night(cap=2)", "Lane 'main': of 'greet' cap=2 up to 2 chains run, which is more than it runs at once (1 pro"),
        (
            "night(), replace(night(), name='again')",
            "Lane 'main': of 'greet' cap=1 and 'again' cap=1 up to 2 chains run, which is more than it runs at once "
            "(1 processes of 1 threads)",
        ),
        ("night(cron='0 4 * * 1-5')", "its cron '0 4 * * 1-5' leaves nights out, as from Fri 20"),
        ("night(cron='0 4 2-31 * *')", "Give a cron of every day, and let actors.greetings:left count nothing in a"),
        ("night(quota='model')", "There is no quota named 'model'. Known: none. Quotas stand in config/quotas.py."),
    ],
)
def test_what_cannot_stand_beside_the_rest_is_one_line(
    fleet: Fleet, write_app: WriteApp, entry: str, finding: str
) -> None:
    assert finding in " ".join(findings(fleet, write_app, entry))
