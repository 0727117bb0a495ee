"""A night as a timeline: what is shown of each entry when, in nights of 23, 24 and 25 hours."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, time, timedelta
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.allowance import Decision
from fleet.by_hand import Pause
from fleet.overlaps import Overlap
from fleet.timeline import Night, Recorded, Segment, svg, timeline
from fleet.timeline.painting import joined, painted
from tests.fleet.nights import (
    BERLIN,
    HOUR,
    MINUTE,
    NAME,
    NIGHT,
    at,
    decided,
    elastic,
    entry,
    fired,
    known,
    of_one_entry,
    ran,
    said,
    shown,
)


def test_a_slot_that_is_to_come_is_scheduled_for_as_long_as_it_was_seen_to_take() -> None:
    assert shown(of_one_entry("02:00")) == [("scheduled", "03:10", "03:20")]
    assert shown(of_one_entry(None)) == [("scheduled", "03:10", "03:20")], "a plan knows of no now"


def test_a_message_waits_runs_waits_for_its_next_try_and_runs() -> None:
    tries = [ran("n", "03:10", "03:15", 5, "retried"), ran("n", "03:10", "03:40", 10, attempt=2)]
    assert shown(of_one_entry("05:00", fired(NAME, "03:10"), runs=tries)) == [
        ("held", "03:10", "03:15"),
        ("retried", "03:15", "03:20"),
        ("held", "03:20", "03:40"),
        ("done", "03:40", "03:50"),
    ]


def test_a_run_that_still_goes_ends_now() -> None:
    found = of_one_entry("03:30", fired(NAME, "03:10"), runs=[ran("n", "03:10", "03:11", None)])
    assert shown(found)[-1] == ("running", "03:11", "03:30")


def test_a_message_that_waits_is_held_until_now_and_never_longer_than_its_window() -> None:
    assert shown(of_one_entry("03:30", fired(NAME, "03:10"))) == [("held", "03:10", "03:30")]
    assert shown(of_one_entry("09:00", fired(NAME, "03:10"))) == [("held", "03:10", "05:10")]


def test_a_message_that_expired_in_its_queue_is_shown_as_expired_over_its_window() -> None:
    found = of_one_entry("09:00", fired(NAME, "03:10"), runs=[ran("n", "03:10", "05:12", 0, "expired")])
    assert shown(found) == [("expired", "03:10", "05:10")]
    assert found.remarks() == ["03:10 nightly_audit expired: its message expired in its queue"]


@pytest.mark.parametrize(
    ("verdict", "seen"),
    [
        ("expired", ("expired", "03:10", "05:10")),
        ("coalesced", ("coalesced", "03:10", "03:11")),
        ("overlapped", ("coalesced", "03:10", "03:11")),
        ("paused", ("paused", "03:10", "03:11")),
    ],
)
def test_a_slot_that_was_not_sent_says_why(verdict: str, seen: tuple[str, str, str]) -> None:
    assert shown(of_one_entry("09:00", fired(NAME, "03:10", verdict))) == [seen]


def test_a_slot_that_has_come_and_has_no_verdict_asks_for_the_beat() -> None:
    found = of_one_entry("03:30", fired(NAME, "14:00"))
    assert ("held", "03:10", "03:30") in shown(found)
    assert "does a beat lead" in found.rows[0].tracks[0].segments[-1].note


def test_a_pause_is_shown_from_its_beginning_to_its_end_and_hides_what_is_scheduled() -> None:
    lines = [fired(NAME, "13:00", "pause"), fired(NAME, "14:00", "resume")]
    assert shown(of_one_entry("02:00", *lines))[0] == ("paused", "13:00", "14:00")
    note = Pause("maria", at("23:00"), "the mail host moves")
    assert shown(of_one_entry("02:00", pauses={NAME: note})) == [("paused", "23:00", "12:00")]


def test_elastic_work_is_held_or_released_as_was_decided_and_its_window_is_to_come() -> None:
    sweep = elastic(entry(NAME, "0 4 * * *"), time(0, 30), time(6, 15), 4)
    calm = decided(at("00:30"), 2, "calm", "nobody waits")
    decisions = said(at("02:00"), calm, decided(at("01:14"), 0, "hot", "realtime waited"))
    decisions.insert(1, decided(at("00:31"), 2, "calm", "nobody waits, a minute later"))
    recorded = Recorded(runs={NAME: [ran("c", None, "00:40", 10)]}, decisions={NAME: decisions}, leased={NAME})
    found = timeline([known(sweep, "lane", 9)], recorded, NIGHT, at("02:00"))
    assert shown(found) == [
        ("released", "00:30", "00:40"),
        ("done", "00:40", "00:50"),
        ("released", "00:50", "01:14"),
        ("held", "01:14", "02:00"),
        ("scheduled", "02:00", "06:15"),
    ]
    assert replace(found.rows[0].tracks[0].steps[1], text="held at 0 of 4: realtime waited").told(4) == (
        "hot, held at 0 of 4: realtime waited"
    ), "the balancer's own words say how many"
    assert found.changes() == [
        "00:30 nightly_audit 2 of 4, calm: nobody waits",
        "01:14 nightly_audit 0 of 4, hot: realtime waited",
    ]


def test_elastic_work_that_nobody_decided_on_is_at_the_cron_slots_level() -> None:
    sweep = elastic(entry(NAME, "0 4 * * *"), time(0, 30), time(6, 15), 4)
    decisions = said(at("02:00"), decided(at("00:40"), 2, "calm", "nobody waits"))
    decisions.append(decided(at("13:00"), 0, "closed", "opens at 00:30"))
    decisions.sort(key=lambda one: one.at)
    found = timeline([known(sweep, "lane", 9)], Recorded(decisions={NAME: decisions}), NIGHT, at("08:00"))
    told = found.night.told
    assert [(told(one.begins), told(one.ends), one.places, one.reason) for one in found.rows[0].tracks[0].steps] == [
        ("00:30", "00:40", 0, "lapsed"),
        ("00:40", "01:53", 2, "calm"),  # the last was said at 01:50; none followed it
        ("01:53", "04:00", 0, "lapsed"),
        ("04:00", "06:15", 4, "lapsed"),
        ("06:15", "07:45", 0, "lapsed"),  # its day, until the window closes
    ]
    assert shown(found) == [
        ("held", "00:30", "00:40"),
        ("released", "00:40", "01:53"),
        ("held", "01:53", "04:00"),
        ("released", "04:00", "06:15"),
        ("held", "06:15", "07:45"),
    ]


def of_sweep(now: str, *decisions: Decision, **more: Any) -> list[tuple[str, str, int, str]]:
    """(begins, ends, places, reason) of each step of an entry whose window opens at 00:30 and whose slot is at four."""
    sweep = elastic(entry(NAME, "0 4 * * *"), time(0, 30), time(6, 15), 4)
    found = timeline([known(sweep, "lane", 9)], Recorded(decisions={NAME: decisions}, **more), NIGHT, at(now))
    told = found.night.told
    return [(told(one.begins), told(one.ends), one.places, one.reason) for one in found.rows[0].tracks[0].steps]


def test_a_window_whose_first_decision_is_a_moment_behind_its_opening_did_not_lapse_before() -> None:
    closed, calm = decided(at("00:25"), 0, "closed", "opens at 00:30"), decided(at("00:31"), 0, "calm", "nobody waits")
    assert of_sweep("00:32", closed, calm) == [("00:31", "00:32", 0, "calm")]
    assert of_sweep("00:32", closed) == [("00:30", "00:32", 0, "lapsed")]


def test_a_decision_without_one_behind_it_stands_until_now_only_while_its_lease_does() -> None:
    calm = decided(at("00:30"), 2, "calm", "nobody waits")
    assert of_sweep("00:40", calm, leased={NAME}) == [("00:30", "00:40", 2, "calm")]
    assert of_sweep("00:40", calm) == [("00:30", "00:33", 2, "calm"), ("00:33", "00:40", 0, "lapsed")]


def act(wall: str, reason: str, **numbers: Any) -> Decision:
    """What a person did."""
    return replace(decided(at(wall), 0, reason, f"by ann at {wall}"), epoch=0, numbers=numbers)


def test_with_the_balancer_off_the_level_holds_by_a_persons_hand_until_somebody_decides_again() -> None:
    calm, again = decided(at("00:30"), 2, "calm", "nobody waits"), decided(at("04:20"), 1, "calm", "nobody waits")
    off = act("00:36", "blind", level=True, off=True)
    assert of_sweep("04:21", calm, off, again) == [
        ("00:30", "00:36", 2, "calm"),
        ("00:36", "04:00", 0, "by hand"),
        ("04:00", "04:20", 4, "by hand"),
        ("04:20", "04:21", 1, "calm"),
    ]


def test_behind_a_switch_on_or_a_release_nobody_who_decides_is_a_persons_doing_for_a_lease_only() -> None:
    on = act("01:00", "blind", level=True, off=False)
    for one in (on, act("01:00", "blind", level=True)):
        assert of_sweep("02:00", act("00:30", "blind", level=True, off=True), on, one)[-2:] == [
            ("01:00", "01:03", 0, "by hand"),
            ("01:03", "02:00", 0, "lapsed"),
        ]


def test_while_the_balancer_is_off_a_release_leaves_it_the_reason() -> None:
    off, held = act("00:30", "blind", level=True, off=True), act("00:50", "held", until=at("03:00").isoformat())
    assert of_sweep("02:00", off, held, act("01:00", "blind", level=True)) == [
        ("00:30", "00:50", 0, "by hand"),
        ("00:50", "01:00", 0, "held"),
        ("01:00", "02:00", 0, "by hand"),
    ]


def test_a_release_while_the_balancer_is_blind_leaves_what_it_decided() -> None:
    released = act("03:00", "blind")
    assert of_sweep("03:10", released, leased={NAME})[-1] == ("03:00", "03:10", 0, "blind")


def test_a_pause_that_stood_when_the_balancer_was_switched_off_ends_with_its_resumption() -> None:
    lines = [fired(NAME, "04:10", "pause"), fired(NAME, "04:32", "resume")]
    off, paused = act("04:30", "blind", level=True, off=True), act("04:30", "paused")
    again = decided(at("04:40"), 4, "calm", "there is room")
    assert of_sweep("04:40", off, paused, again, ledger={NAME: lines})[-2:] == [
        ("04:10", "04:32", 0, "paused"),
        ("04:32", "04:40", 4, "by hand"),
    ]


def test_a_hold_and_a_pause_stand_also_while_nobody_decides() -> None:
    until = {"until": at("04:30").isoformat()}
    off = act("00:30", "blind", level=True, off=True)
    held = replace(decided(at("01:00"), 0, "held", "held by bob"), numbers=until)
    pauses = {NAME: Pause("maria", at("05:00"), "the mail host moves")}
    for epoch in (0, 1):
        assert of_sweep("05:30", off, replace(held, epoch=epoch), pauses=pauses) == [
            ("00:30", "01:00", 0, "by hand"),
            ("01:00", "04:30", 0, "held"),
            ("04:30", "05:00", 4, "lapsed" if epoch else "by hand"),
            ("05:00", "05:30", 0, "paused"),
        ]


def test_a_hold_that_follows_a_hold_is_a_step_of_its_own() -> None:
    until = at("03:00").isoformat()
    first, second = (act(wall, "held", until=until) for wall in ("01:00", "01:30"))
    found = of_sweep("01:40", first, replace(first, at=at("01:10"), epoch=1), second)
    assert found[-2:] == [("01:00", "01:30", 0, "held"), ("01:30", "01:40", 0, "held")]


def test_a_hold_that_cannot_be_read_stands_until_something_follows() -> None:
    held = act("01:00", "held", until="1970-01-01T00:00:00+00:00")
    assert of_sweep("05:00", held)[-1] == ("01:00", "05:00", 0, "held")
    again = decided(at("04:30"), 1, "calm", "nobody waits")
    assert of_sweep("04:31", held, again)[-2:] == [("01:00", "04:30", 0, "held"), ("04:30", "04:31", 1, "calm")]


def test_a_hold_that_ended_by_itself_stands_by_its_lease_until_somebody_decides_again() -> None:
    held = replace(decided(at("01:00"), 0, "held", "held by bob"), numbers={"until": at("04:00").isoformat()})
    again = decided(at("04:01"), 1, "floor", "one chain learns")
    assert of_sweep("04:02", held, again)[-2:] == [("01:00", "04:01", 0, "held"), ("04:01", "04:02", 1, "floor")]
    assert of_sweep("04:01", held, leased={NAME})[-1] == ("01:00", "04:01", 0, "held")
    level = [("01:00", "04:00", 0, "held"), ("04:00", "04:01", 4, "lapsed")]
    assert of_sweep("04:01", held)[-2:] == level
    assert [one[:3] for one in of_sweep("04:02", replace(held, epoch=0), again)[-3:-1]] == [one[:3] for one in level]


def test_an_entry_that_comes_often_is_counted_and_only_what_went_wrong_is_drawn() -> None:
    often = entry(NAME, "*/10 * * * *", expires=10 * MINUTE)
    lines = [fired(NAME, f"02:{minute}0") for minute in range(3)] + [fired(NAME, "02:30", "expired", 2, "02:40")]
    runs = [ran("n", f"02:{minute}0", f"02:{minute}0", 1, "failed" if minute == 1 else "done") for minute in range(3)]
    found = timeline([known(often, "lane", 1)], Recorded({NAME: lines}, {NAME: runs}), NIGHT, at("03:00"))
    assert shown(found) == [("failed", "02:10", "02:11"), ("expired", "02:30", "02:50")]
    [counted] = found.rows[0].often
    assert (counted.slots, counted.ran, counted.bad) == (144, 3, 3)


def test_heavy_work_that_goes_at_the_same_time_is_an_overlap_in_its_lane_or_on_the_processors() -> None:
    entries = [
        known(entry("one", "0 1 * * *"), "a", 30, on_cpu=True),
        known(entry("two", "10 1 * * *"), "a", 30),
        known(entry("three", "20 1 * * *"), "b", 30, on_cpu=True),
        known(entry("short", "20 1 * * *"), "a", 4, on_cpu=True),
    ]
    found = timeline(entries, Recorded(), NIGHT, None)
    assert found.overlaps == (
        Overlap("one", "two", "a", at("01:10"), at("01:30")),
        Overlap("one", "three", None, at("01:20"), at("01:30")),
    )
    assert found.remarks()[1] == "01:20–01:30 one and three overlap on the processors"


@pytest.mark.parametrize(
    ("day", "zone", "hours"),
    [
        (date(2026, 3, 2), "Europe/Berlin", 24),
        (date(2026, 3, 28), "Europe/Berlin", 23),
        (date(2026, 10, 24), "Europe/Berlin", 25),
        (date(2026, 4, 4), "Australia/Lord_Howe", 24.5),
    ],
)
def test_a_night_is_from_noon_to_noon_by_the_clocks_of_its_zone(day: date, zone: str, hours: float) -> None:
    night = Night.of(day, ZoneInfo(zone))
    assert night.ends - night.begins == hours * HOUR
    assert (night.told(night.begins), night.told(night.ends)) == ("12:00", "12:00")
    for instant in (night.begins, night.begins + 12 * HOUR, night.ends - timedelta(microseconds=1)):
        assert Night.around(instant, ZoneInfo(zone)) == night


def test_a_daily_slot_that_a_change_of_clocks_leaves_out_is_there_once() -> None:
    spring = Night.of(date(2026, 3, 28), BERLIN)
    found = timeline([known(entry(NAME, "30 2 * * *"), "lane", 10)], Recorded(), spring, None)
    assert len(found.rows[0].tracks[0].segments) == 1


KINDS = st.sampled_from(["scheduled", "held", "released", "paused", "coalesced", "expired", "ran"])
NIGHTS = st.sampled_from([NIGHT, Night.of(date(2026, 3, 28), BERLIN), Night.of(date(2026, 10, 24), BERLIN)])
SEGMENTS = st.lists(st.tuples(KINDS, st.integers(-300, 1800), st.integers(0, 600)), max_size=30)


@given(NIGHTS, SEGMENTS)
def test_what_is_painted_never_overlaps_lies_inside_the_night_and_covers_whatever_held(
    night: Night, given: list[tuple[Any, int, int]]
) -> None:
    segments = [Segment(kind, night.begins + b * MINUTE, night.begins + (b + n) * MINUTE) for kind, b, n in given]
    seen = painted(segments, night)
    assert all(night.begins <= one.begins < one.ends <= night.ends for one in seen)
    assert all(one.ends <= other.begins for one, other in pairwise(seen))
    minutes = {m for m in range(int((night.ends - night.begins) / MINUTE)) if _holds(segments, night, m)}
    assert minutes == {m for m in range(int((night.ends - night.begins) / MINUTE)) if _holds(seen, night, m)}


def _holds(segments: Any, night: Night, minute: int) -> bool:
    instant = night.begins + (minute + 0.5) * MINUTE
    return any(one.begins <= instant < one.ends for one in segments)


def test_of_two_that_hold_at_once_the_stronger_is_shown_and_the_other_goes_on_behind_it() -> None:
    def made(kind: Any, begins: int, ends: int) -> Segment:
        return Segment(kind, NIGHT.begins + begins * HOUR, NIGHT.begins + ends * HOUR)

    seen = painted([made("held", 1, 6), made("ran", 3, 4), made("scheduled", 2, 8)], NIGHT)
    assert [(one.kind, (one.begins - NIGHT.begins) // HOUR) for one in seen] == [
        ("held", 1),
        ("ran", 3),
        ("held", 4),
        ("scheduled", 6),
    ]


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 9)), min_size=1, max_size=40))
def test_runs_that_are_drawn_as_one_are_counted_and_those_apart_stay_apart(given: list[tuple[int, int]]) -> None:
    runs = [Segment("ran", NIGHT.begins + b * MINUTE, NIGHT.begins + (b + n) * MINUTE, "", "done") for b, n in given]
    done = joined(runs, 5 * MINUTE)
    assert sum(one.count for one in done) == len(runs)
    assert all(later.begins - one.ends >= 5 * MINUTE for one, later in pairwise(done))


MINUTES = st.integers(0, 25 * 60)
VERDICTS = st.sampled_from(["fired", "coalesced", "expired", "paused", "overlapped", "pause", "resume", "manual"])
OUTCOMES = st.sampled_from(["done", "failed", "retried", "expired", "lost", "returned", None])


@settings(max_examples=60)
@given(
    NIGHTS,
    st.sampled_from(["10 3 * * *", "*/10 * * * *", "30 2 * * *", "0 * * * *"]),
    st.lists(st.tuples(MINUTES, VERDICTS), max_size=12),
    st.lists(st.tuples(MINUTES, st.integers(0, 90), OUTCOMES, st.booleans()), max_size=12),
    st.lists(st.tuples(MINUTES, st.integers(0, 4)), max_size=6),
    st.none() | MINUTES,
    st.booleans(),
)
def test_whatever_is_on_record_no_two_segments_of_an_entry_overlap_and_all_lie_inside_the_night(
    night: Night, cron: str, lines: Any, runs: Any, allowed: Any, now: int | None, is_elastic: bool
) -> None:
    instant = lambda minute: night.begins + minute * MINUTE  # noqa: E731
    made = entry(NAME, cron, expires=5 * MINUTE)
    made = elastic(made, time(22, 0), time(6, 0), 4) if is_elastic else made
    ledger = [
        replace(fired(NAME, "12:00", verdict), first=instant(m), last=instant(m), by="x")
        for m, verdict in sorted(lines)
    ]
    recorded = Recorded(
        {NAME: ledger},
        {
            NAME: [
                replace(
                    ran("n", None, "12:00", 0 if how else None, how or ""),
                    id=str(number),
                    slot=instant(m) if of_slot else None,
                    started=instant(m),
                    ended=instant(m + n) if how else None,
                )
                for number, (m, n, how, of_slot) in enumerate(sorted(runs, key=lambda run: run[0]))
            ]
        },
        {NAME: [decided(instant(m), places, "calm", "") for m, places in sorted(allowed)]},
    )
    found = timeline([known(made, "lane", 7)], recorded, night, None if now is None else instant(now))
    for row in found.rows:
        for track in row.tracks:
            assert all(night.begins <= one.begins < one.ends <= night.ends for one in track.segments)
            assert all(one.ends <= other.begins for one, other in pairwise(track.segments))
            assert all(one.ends <= other.begins for one, other in pairwise(track.steps))
    ElementTree.fromstring(svg(found))
