"""The states of an alert: whatever is found when, it opens once, closes once, and does not flap."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from fleet.alerts import Episode, Finding, Rule, step

START = datetime(2026, 11, 30, tzinfo=UTC)
FINDING = Finding("queue_old", "post", "oldest_age", "0:07:00", "0:05:00", "A due message has not been begun.")
SECONDS = st.sampled_from([0, 1, 30, 60, 90, 400]).map(lambda seconds: timedelta(seconds=seconds))
LOOKS = st.lists(st.tuples(SECONDS, st.booleans(), st.booleans()), max_size=60)
"""How long after the one before, whether it is found, and whether what opened or closed is said right after."""


def said(episode: Episode | None) -> Episode | None:
    """What a judge leaves once it has said what opened or closed."""
    if episode is None or episode.closed is not None:
        return None
    return Episode(episode.finding, episode.since, episode.last, episode.opened)


def events(looks: list[tuple[timedelta, bool, bool]], rule: Rule) -> list[tuple[str, int]]:
    """What one judge says over these looks, each with the number of its look: several may be at one instant."""
    told, episode, now = [], None, START
    for number, (after, found, speaks) in enumerate(looks):
        now += after
        episode = step(episode, FINDING if found else None, rule, now, "judge")
        if episode is not None and not episode.said and speaks:
            told.append(("close" if episode.closed else "open", number))
            episode = said(episode)
    return told


def found_at(looks: list[tuple[timedelta, bool, bool]]) -> list[tuple[datetime, bool]]:
    now, told = START, []
    for after, found, _ in looks:
        now += after
        told.append((now, found))
    return told


@given(LOOKS, SECONDS, SECONDS)
def test_no_alert_opens_twice_without_a_close_between(
    looks: list[tuple[timedelta, bool, bool]], for_: timedelta, keep: timedelta
) -> None:
    kinds = [kind for kind, _ in events([(after, found, True) for after, found, _ in looks], Rule(for_, keep))]
    assert kinds == ["open", "close"] * (len(kinds) // 2) + ["open"] * (len(kinds) % 2)


@given(LOOKS, SECONDS, SECONDS)
def test_what_opens_was_found_at_every_look_for_as_long_as_its_rule_says(
    looks: list[tuple[timedelta, bool, bool]], for_: timedelta, keep: timedelta
) -> None:
    looks = [(after, found, True) for after, found, _ in looks]
    seen = found_at(looks)
    for kind, number in events(looks, Rule(for_, keep)):
        if kind == "open":
            gone = [earlier for earlier in range(number) if not seen[earlier][1]]
            first = seen[gone[-1] + 1 if gone else 0][0]
            assert seen[number][0] - first >= for_


@given(LOOKS, SECONDS, SECONDS)
def test_what_closes_was_found_at_no_look_for_as_long_as_its_rule_keeps_it(
    looks: list[tuple[timedelta, bool, bool]], for_: timedelta, keep: timedelta
) -> None:
    looks = [(after, found, True) for after, found, _ in looks]
    seen = found_at(looks)
    for kind, number in events(looks, Rule(for_, keep)):
        if kind == "close":
            assert not seen[number][1]
            at = seen[number][0]
            assert not any(found for instant, found in seen[:number] if instant > at - keep)


@given(LOOKS, SECONDS, SECONDS)
def test_an_episode_that_ends_does_so_within_one_look_of_what_its_rule_keeps(
    looks: list[tuple[timedelta, bool, bool]], for_: timedelta, keep: timedelta
) -> None:
    ends = [(timedelta(0), True, True), (for_, True, True), (keep, False, True), (keep, False, True)]
    told = events([*((after, found, True) for after, found, _ in looks), *ends], Rule(for_, keep))
    assert told
    assert told[-1][0] == "close" or keep == timedelta(0)


@given(LOOKS, SECONDS, SECONDS)
def test_whatever_is_left_unsaid_stays_to_be_said_and_nothing_is_said_of_what_never_opened(
    looks: list[tuple[timedelta, bool, bool]], for_: timedelta, keep: timedelta
) -> None:
    episode, now, spoken = None, START, False
    for after, found, speaks in looks:
        before, now = episode, now + after
        episode = step(episode, FINDING if found else None, Rule(for_, keep), now, "judge")
        if before is not None and before.closed is not None:
            assert episode == before  # its close is not said yet
        if episode is not None and episode.closed is not None:
            assert episode.opened is not None and not episode.said
        if episode is not None and not episode.said and speaks:
            spoken, episode = True, said(episode)
    assert spoken or not any(kind for kind, _ in events(looks, Rule(for_, keep)))


def test_what_is_found_again_within_its_keep_is_the_same_alert() -> None:
    minute = timedelta(minutes=1)
    looks = [(minute, found, True) for found in (True, False, True, False, False, True, False, False, False)]
    told = events(looks, Rule(timedelta(0), 3 * minute))
    assert told == [("open", 0), ("close", 8)]


def test_a_clock_that_steps_back_opens_and_closes_nothing() -> None:
    rule = Rule(timedelta(minutes=2), timedelta(minutes=2))
    pending = step(None, FINDING, rule, START, "judge")
    assert pending is not None and pending.opened is None
    later = step(pending, FINDING, rule, START - timedelta(hours=1), "judge")
    assert later is not None and later.opened is None
    opened = step(later, FINDING, rule, START + timedelta(minutes=2), "judge")
    assert opened is not None and opened.opened is not None
    assert step(opened, None, rule, START - timedelta(hours=1), "judge") == opened
