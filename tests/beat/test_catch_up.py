"""What is still sent after an outage, and what becomes of the slots that are not."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beat.catch_up import Instant, Proposal, next_due, proposals
from beat.fire import Firer
from beat.leader import Leader
from beat.now import Now
from beat.revisions import ENDED, History, history, spec
from fleet import All, Entry, wire
from fleet.broker import FleetBroker
from fleet.declarations import CatchUp
from fleet.slots import offset, slots_between
from tests.beat.beaten import HOUR, MINUTE, SECOND, START, Beaten, StandingNight, into_a_second

SIX = datetime(2026, 3, 2, 6, tzinfo=UTC)
TICK = timedelta(microseconds=1)


def wide(catch_up: CatchUp, expires: timedelta = timedelta(hours=2, minutes=10)) -> Entry:
    return Entry("wide", cron="0 * * * *", expires=expires, because="slots overlap", actor="job", catch_up=catch_up)


@pytest.mark.parametrize(
    ("catch_up", "verdicts"),
    [
        (
            "latest",
            [
                ("expired", "02:00:00", "03:00:00", 2),
                ("coalesced", "04:00:00", "05:00:00", 2),
                ("fired", "06:00:00", "06:00:00", 1),
            ],
        ),
        (
            All(2),
            [
                ("expired", "02:00:00", "03:00:00", 2),
                ("coalesced", "04:00:00", "04:00:00", 1),
                ("fired", "05:00:00", "05:00:00", 1),
                ("fired", "06:00:00", "06:00:00", 1),
            ],
        ),
        (
            All(100),
            [
                ("expired", "02:00:00", "03:00:00", 2),
                *[("fired", f"0{hour}:00:00", f"0{hour}:00:00", 1) for hour in (4, 5, 6)],
            ],
        ),
        ("none", [("expired", "02:00:00", "06:00:00", 5)]),
    ],
)
def test_after_an_outage_an_entrys_own_choice_is_sent_once_and_the_rest_is_recorded(
    night: StandingNight,
    broker: FleetBroker,
    leader: Leader,
    beaten: Beaten,
    catch_up: CatchUp,
    verdicts: list[tuple[str, str, str, int]],
) -> None:
    firer = Firer(broker, leader, [wide(catch_up)], Now())
    firer.pass_over()
    night.move_to(SIX + 5 * MINUTE)
    for _ in range(2):
        firer.pass_over()
        Firer(broker, leader, [wide(catch_up)], Now()).pass_over()
    assert beaten.verdicts("wide") == verdicts
    assert beaten.slots() == [line.last for line in beaten.lines("wide") if line.verdict == "fired"]


def test_an_entry_that_catches_up_on_nothing_fires_what_is_on_time(
    broker: FleetBroker, leader: Leader, beaten: Beaten
) -> None:
    entry = Entry("prompt", every=SECOND, expires=SECOND, because="a test needs slots", actor="job", catch_up="none")
    firer = Firer(broker, leader, [entry], Now())
    into_a_second(share=0.2)
    firer.pass_over()
    time.sleep(1.05)
    firer.pass_over()
    assert [line[0] for line in beaten.verdicts("prompt")] == ["fired"]


@pytest.mark.parametrize("catch_up", ["latest", "none", All(10)], ids=str)
@pytest.mark.parametrize("when", [{"every": SECOND}, {"cron": "* * * * * *", "tz": "Europe/Berlin"}], ids=str)
def test_a_year_of_outage_of_a_one_second_entry_is_reconciled_in_100_ms_of_cpu_and_sends_at_most_what_was_chosen(
    night: StandingNight,
    broker: FleetBroker,
    leader: Leader,
    beaten: Beaten,
    catch_up: CatchUp,
    when: dict[str, object],
) -> None:
    entry = Entry("s", expires=HOUR, because="a test needs slots", actor="job", catch_up=catch_up, **when)  # type: ignore[arg-type]
    firer = Firer(broker, leader, [entry], Now())
    firer.pass_over()
    night.move_to(START + timedelta(days=365))
    began = time.thread_time()
    firer.pass_over()
    took = time.thread_time() - began
    most = {"latest": 1, "none": 1}.get(str(catch_up), 10)
    assert took < 0.1
    assert len(beaten.messages()) <= most
    lines = [line for line in beaten.lines("s") if line.judges]
    assert sum(line.count for line in lines) == 365 * 86_400
    assert (lines[0].first, lines[-1].last) == (START + SECOND, START + timedelta(days=365))


def revisions(*said: tuple[datetime, Entry | None]) -> History:
    lines = [
        f"{number} {wire.to_ms(began)} {ENDED if entry is None else spec(entry, 'work')}"
        for number, (began, entry) in enumerate(said, start=1)
    ]
    made = history("e", "\n".join(lines))
    assert made is not None
    return made


WHENS = [
    *({"every": 7 * SECOND}, {"every": MINUTE}, {"cron": "*/3 * * * *"}, {"cron": "10 * * * *"}),
    *({"every": MINUTE, "jitter": 50 * SECOND}, {"cron": "*/10 * * * *", "jitter": 4 * MINUTE}),
]


@st.composite
def edited(draw: st.DrawFn) -> tuple[History, datetime, Instant]:
    """A history of edits (an end among them, perhaps), a mark before or within it, and a time after the mark."""
    said: list[tuple[datetime, Entry | None]] = []
    at = SIX
    for number in range(draw(st.integers(1, 4))):
        when = draw(st.sampled_from(WHENS))
        expires = draw(st.sampled_from([5 * MINUTE, 20 * MINUTE, 3 * HOUR]))
        catch_up = draw(st.sampled_from(["latest", "none", All(1), All(3)]))
        entry = Entry("e", expires=expires, because="a test needs slots", catch_up=catch_up, **when)  # type: ignore[arg-type]
        said.append((at, None if number and draw(st.integers(0, 4)) == 0 else entry))
        at += timedelta(seconds=draw(st.integers(1, 3 * 3600)))
    mark = SIX + timedelta(seconds=draw(st.integers(-600, 2 * 3600)))
    now = mark + timedelta(milliseconds=draw(st.integers(0, 5 * 3_600_000)))
    return revisions(*said), mark, Instant(now, now)


def test_a_slot_that_is_not_due_yet_holds_up_those_of_a_later_revision_so_that_none_is_passed_over() -> None:
    hourly = Entry("e", cron="0 * * * *", expires=HOUR, because="a test needs slots", jitter=50 * MINUTE)
    made = revisions(
        (SIX, hourly), (SIX + 65 * MINUTE, Entry("e", every=MINUTE, expires=HOUR, because="it was edited"))
    )
    seven, due = SIX + HOUR, SIX + HOUR + offset(hourly)
    assert offset(hourly) > 7 * MINUTE
    before = Instant(due - SECOND, due - SECOND)
    assert proposals(made, SIX, before) == []
    first, *_, last = proposals(made, SIX, Instant(due, due))
    assert first.first == seven and last.last > SIX + 65 * MINUTE


def owned(made: History, mark: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    """(slot, when it is due) of every slot after the mark, by going through them."""
    found = []
    for number, revision in enumerate(made.revisions):
        ends = made.revisions[number + 1].began if number + 1 < len(made.revisions) else until
        begins = mark if number == 0 else max(mark, revision.began)
        if revision.entry is not None and begins < min(ends, until):
            found += [
                (slot, slot + revision.offset) for slot in slots_between(revision.entry, begins, min(ends, until))
            ]
    return found


@settings(max_examples=300, deadline=None)
@given(edited())
def test_every_slot_that_is_due_is_in_one_line_in_order_and_no_more_fire_than_was_chosen(
    case: tuple[History, datetime, Instant],
) -> None:
    made, mark, at = case
    should: list[datetime] = []
    for slot, due in owned(made, mark, at.now):
        if due > at.due:
            break  # what is not due holds up what is behind it
        should.append(slot)
    lines = proposals(made, mark, at)
    assert [slot for line in lines for slot in expanded(line)] == should
    fired = [line for line in lines if line.verdict == "fired"]
    catch_up = made.living.entry.catch_up if made.living.entry else "latest"
    assert len(fired) <= (catch_up.most if isinstance(catch_up, All) else 1)
    for line in lines:
        assert (line.verdict == "expired") == (line.expires < at.now - timedelta(milliseconds=2)), line
    if lines and lines[-1].verdict != "expired":
        assert fired, "slots were given up for one that is not sent"


def expanded(line: Proposal) -> list[datetime]:
    assert line.revision.entry is not None
    slots = list(slots_between(line.revision.entry, line.first - TICK, line.last))
    assert len(slots) == line.count
    return slots


@settings(max_examples=300, deadline=None)
@given(edited())
def test_an_entry_is_due_next_when_its_first_slot_behind_the_mark_is(case: tuple[History, datetime, Instant]) -> None:
    made, mark, _ = case
    coming = owned(made, mark, mark + timedelta(days=2))
    assert next_due(made, mark) == (coming[0][1] if coming else None)
