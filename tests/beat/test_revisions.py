"""An edited schedule loses no slot and doubles none, whoever leads while both are in use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import redis
from structlog.testing import capture_logs

from beat import stored
from beat.fire import Firer
from beat.leader import Leader
from beat.now import Now
from beat.revisions import REVISIONS_KEPT, history, spec
from fleet import All, Entry, doctor_fleet, wire
from fleet.app import App
from fleet.broker import FleetBroker, keys
from fleet.slots import slots_between
from tests.beat.beaten import HOUR, MINUTE, SECOND, START, Beaten, StandingNight

OLD = Entry("e", every=10 * MINUTE, expires=HOUR, because="a test needs slots", actor="job")
NEW = replace(OLD, every=None, cron="5-59/10 * * * *")
OTHER = Entry("other", every=HOUR, expires=HOUR, because="a test needs slots", actor="job")


@pytest.fixture
def beat(broker: FleetBroker, redis_client: redis.Redis) -> Callable[..., Firer]:
    """A replica with a schedule of its own, which believes that it leads; `take_office` has Redis think so too."""

    def made(*schedule: Entry) -> Firer:
        candidate = Leader(redis_client, broker.namespace, ttl=6 * SECOND, renewal=2 * SECOND)
        candidate.leads = lambda: True  # type: ignore[method-assign]
        firer = Firer(broker, candidate, schedule, Now())
        firer.register()
        return firer

    return made


def take_office(firer: Firer, client: redis.Redis) -> None:
    ns = firer._broker.namespace
    client.set(keys.leader(ns), firer._leader.token, ex=60)
    firer._leader.epoch = client.incr(keys.epoch(ns))


def slots(entry: Entry, after: datetime, until: datetime) -> list[datetime]:
    return list(slots_between(entry, after, until))


def test_slots_due_before_an_edit_are_the_old_ones_and_those_after_it_the_new_ones(
    beat: Callable[..., Firer], night: StandingNight, beaten: Beaten, redis_client: redis.Redis
) -> None:
    beat(OLD)
    edit, end = START + 33 * MINUTE, START + 64 * MINUTE
    night.move_to(edit)  # nobody led until then
    firer = beat(NEW)
    take_office(firer, redis_client)
    night.move_to(end)
    firer.pass_over()
    lines = [line for line in beaten.lines("e") if line.judges]
    assert [(line.revision, line.verdict, line.count) for line in lines] == [
        *((1, "coalesced", 3), (2, "coalesced", 2), (2, "fired", 1)),
    ]
    judged = [slot for line in lines for slot in slots({1: OLD, 2: NEW}[line.revision], line.first - SECOND, line.last)]
    assert judged == slots(OLD, START, edit) + slots(NEW, edit, end)


def test_a_slot_that_was_fired_early_is_not_in_the_way_of_a_revision_that_begins_meanwhile(
    beat: Callable[..., Firer], night: StandingNight, beaten: Beaten, redis_client: redis.Redis, namespace: str
) -> None:
    """A leader may be two seconds early: its mark then lies ahead of the instant at which a revision is registered."""
    beat(OLD)
    redis_client.hset(keys.marks(namespace), "e", wire.to_ms(START + 2 * SECOND))
    beat(NEW)
    known = history("e", redis_client.hget(keys.revisions(namespace), "e").decode())  # type: ignore[union-attr]
    assert known is not None
    assert [revision.began for revision in known.revisions] == [START + 2 * SECOND]
    assert known.revisions[0].number == 2


def test_a_revision_that_begins_while_the_clock_is_set_back_takes_no_slot_from_the_one_before(
    beat: Callable[..., Firer], night: StandingNight, beaten: Beaten, redis_client: redis.Redis
) -> None:
    beat(OLD)
    for minutes, entry in ((30, NEW), (5, OLD)):
        night.move_to(START + minutes * MINUTE)
        firer = beat(entry)
    take_office(firer, redis_client)
    night.move_to(START + 55 * MINUTE)
    firer.pass_over()
    lines = [line for line in beaten.lines("e") if line.judges]
    judged = [slot for line in lines for slot in slots(OLD, line.first - SECOND, line.last)]
    assert judged == slots(OLD, START, START + 55 * MINUTE)


def test_two_releases_that_take_turns_in_a_rolling_deploy_double_no_slot_and_lose_none(
    beat: Callable[..., Firer], night: StandingNight, beaten: Beaten, redis_client: redis.Redis
) -> None:
    olds = [beat(OLD, OTHER)]
    take_office(olds[0], redis_client)
    olds[0].pass_over()
    edit = START + 95 * MINUTE
    news: list[Firer] = []
    for minute in range(1, 241):
        night.move_to(START + minute * MINUTE)
        if minute == 95:
            news.append(beat(NEW, OTHER))
        if minute % 7 == 0:
            turn = (minute // 7) % 2
            take_office((news or olds)[0] if turn else olds[0], redis_client)
        for firer in (*olds, *news):
            firer.pass_over()
    end = START + 240 * MINUTE
    fired = [(line.revision, line.last) for line in beaten.lines("e") if line.verdict == "fired"]
    assert fired == [(1, slot) for slot in slots(OLD, START, edit)] + [(2, slot) for slot in slots(NEW, edit, end)]
    ids = [message.message_id for message in beaten.messages()]
    assert len(ids) == len(set(ids)) == len(fired) + len(slots(OTHER, START, end))
    leads = {line.token for line in beaten.lines("e") if line.judges and line.revision == 2}
    assert len(leads) == 2, "both releases fired the new schedule"


def test_a_leader_that_was_not_told_of_an_edit_fires_no_slot_of_the_old_schedule_after_it(
    beat: Callable[..., Firer], night: StandingNight, beaten: Beaten, redis_client: redis.Redis
) -> None:
    """A ring makes do with what was looked at last: that the schedule is another one the script must say."""
    old = beat(OLD)
    take_office(old, redis_client)
    old.pass_over()
    beat(NEW)
    night.move_to(START + 12 * MINUTE)
    old.pass_over(["e"])
    assert [line.first for line in beaten.lines("e") if line.judges] == slots(NEW, START, START + 12 * MINUTE)


def test_a_leader_of_the_old_release_fires_an_entry_and_an_actor_that_it_does_not_know(
    beat: Callable[..., Firer], night: StandingNight, beaten: Beaten, redis_client: redis.Redis, broker: FleetBroker
) -> None:
    old = beat(OLD)
    take_office(old, redis_client)
    actors = dict(broker.actors)
    beat(OLD, OTHER)
    broker.actors.clear()
    night.move_to(START + HOUR)
    old.pass_over()
    broker.actors.update(actors)
    assert [line[0] for line in beaten.verdicts("other")] == ["fired"]


def test_an_entry_that_was_left_out_fires_no_more_but_what_was_due_before(
    beat: Callable[..., Firer], night: StandingNight, beaten: Beaten, redis_client: redis.Redis
) -> None:
    old = beat(OLD, OTHER)
    take_office(old, redis_client)
    night.move_to(START + 15 * MINUTE)
    beat(OTHER)
    night.move_to(START + 55 * MINUTE)
    old.pass_over()
    assert beaten.verdicts("e") == [("fired", "01:10:00", "01:10:00", 1)]
    night.move_to(START + 85 * MINUTE)
    old.pass_over()
    assert len(beaten.verdicts("e")) == 1


def test_the_entries_that_a_start_ended_are_named_once_and_by_the_doctor_while_they_are_ended(
    beat: Callable[..., Firer], night: StandingNight, redis_client: redis.Redis, namespace: str
) -> None:
    """As by a second application that has the same namespace, with a schedule of its own or an empty one."""
    app = App(Path(), {}, (), (OLD, OTHER))
    beat(OLD, OTHER)
    assert list(doctor_fleet.entries_of(app, redis_client, namespace)) == []
    with capture_logs() as logs:
        for schedule in ([OTHER], [OTHER], []):
            beat(*schedule)
    said = [line for line in logs if line["event"] == "entries_ended"]
    assert [(line["ended"], line["count"]) for line in said] == [("e", 1), ("other", 1)]
    (found,) = doctor_fleet.entries_of(app, redis_client, namespace)
    assert found.found.endswith("that this code declares: e, other")
    beat(OLD, OTHER)
    assert list(doctor_fleet.entries_of(app, redis_client, namespace)) == []


def test_an_entry_that_comes_back_owes_nothing_of_the_time_it_was_left_out(
    beat: Callable[..., Firer], night: StandingNight, beaten: Beaten, redis_client: redis.Redis
) -> None:
    firer = beat(OLD)
    take_office(firer, redis_client)
    firer.pass_over()
    for minute, schedule in ((15, [OTHER]), (45, [OLD, OTHER])):
        night.move_to(START + minute * MINUTE)
        firer.pass_over()
        beat(*schedule)
    night.move_to(START + 55 * MINUTE)
    firer.pass_over()
    assert [line[1:] for line in beaten.verdicts("e")] == [
        ("01:10:00", "01:10:00", 1),
        ("01:50:00", "01:50:00", 1),
    ]
    assert beaten.events("e").count("new") == 1


def test_a_process_registers_once_so_that_an_old_one_does_not_turn_the_schedule_back(
    beat: Callable[..., Firer], night: StandingNight, redis_client: redis.Redis, namespace: str
) -> None:
    old = beat(OLD)
    take_office(old, redis_client)
    old.pass_over()
    new = beat(NEW)
    generation = redis_client.hget(keys.schedule(namespace), "generation")
    for _ in range(3):
        take_office(old, redis_client)
        old.pass_over()
    assert redis_client.hget(keys.schedule(namespace), "generation") == generation
    assert redis_client.hget(keys.schedule(namespace), "digest") == new._stored._digest.encode()  # type: ignore[union-attr]


def test_the_same_schedule_registered_again_changes_nothing(
    beat: Callable[..., Firer], night: StandingNight, redis_client: redis.Redis, namespace: str, beaten: Beaten
) -> None:
    beat(OLD)
    before = beaten.everything()
    night.move_to(START + HOUR)
    beat(OLD)
    after = beaten.everything()
    generation = redis_client.hget(keys.schedule(namespace), "generation")
    for found in (before, after):
        found.pop(keys.schedule(namespace).encode())
    assert after == before and generation == b"1"


def test_a_redis_that_forgot_the_schedule_is_given_it_again(
    beat: Callable[..., Firer], night: StandingNight, redis_client: redis.Redis, namespace: str, beaten: Beaten
) -> None:
    firer = beat(OLD)
    take_office(firer, redis_client)
    firer.pass_over()
    for key in redis_client.scan_iter(f"{namespace}:*"):
        redis_client.delete(key)
    take_office(firer, redis_client)
    firer._leader.epoch = 7  # as after a new campaign
    redis_client.set(keys.epoch(namespace), 7)
    firer.pass_over()
    night.move_to(START + 10 * MINUTE)
    firer.pass_over()
    assert [line[0] for line in beaten.verdicts("e")] == ["fired"]


def test_a_schedule_whose_last_process_is_gone_is_taken_over_by_the_leader_and_not_before(
    beat: Callable[..., Firer],
    night: StandingNight,
    redis_client: redis.Redis,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when a process of the old release is started again after those of the new one, and then ended."""
    new, late_old = beat(NEW), beat(OLD)
    take_office(new, redis_client)
    seconds = [0.0]
    monkeypatch.setattr(stored.clock, "monotonic", lambda: seconds[0])
    new._stored._unchanged_since = new._stored._looked = 0.0

    def passes(number: int, *firers: Firer) -> None:
        for _ in range(number):
            seconds[0] += 1
            for firer in firers:
                firer.pass_over()

    def digest() -> str:
        return redis_client.hget(keys.schedule(namespace), "digest").decode()  # type: ignore[union-attr]

    passes(100, late_old, new)
    assert digest() == late_old._stored._digest, "a process with the stored schedule lives"
    passes(55, new)
    seconds[0] += 300  # Redis was away, or this process was stopped: it cannot say that nobody else looked
    passes(55, new)
    assert digest() == late_old._stored._digest
    passes(10, new)
    assert digest() == new._stored._digest


def test_no_more_revisions_are_kept_than_there_are_slots_to_judge_by_them(
    beat: Callable[..., Firer], night: StandingNight, redis_client: redis.Redis, namespace: str
) -> None:
    def kept() -> int:
        return redis_client.hget(keys.revisions(namespace), "e").count(b"\n") + 1  # type: ignore[union-attr]

    for number in range(REVISIONS_KEPT + 20):
        night.move_to(START + number * MINUTE)
        beat(NEW if number % 2 else OLD)
    assert kept() == REVISIONS_KEPT
    firer = beat(NEW)
    take_office(firer, redis_client)
    night.move_to(START + 2 * HOUR)
    firer.pass_over()
    beat(OLD)
    assert kept() == 2, "those whose slots all have a verdict are let go"


def test_a_new_zone_expiry_or_jitter_is_a_new_revision_and_a_new_reason_is_none(
    beat: Callable[..., Firer], night: StandingNight, redis_client: redis.Redis, namespace: str
) -> None:
    def number() -> int:
        known = history("e", redis_client.hget(keys.revisions(namespace), "e").decode())  # type: ignore[union-attr]
        assert known is not None
        return known.revisions[-1].number

    numbers = []
    for entry in (
        NEW,
        replace(NEW, tz="Asia/Tokyo"),
        replace(NEW, expires=2 * HOUR),
        replace(NEW, jitter=MINUTE),
        replace(NEW, jitter=MINUTE, because="somebody found better words"),
    ):
        beat(entry)
        numbers.append(number())
    assert numbers == [1, 2, 3, 4, 4]


def test_what_a_revision_says_is_read_back_as_it_was_declared() -> None:
    declared = Entry(
        "e",
        cron="5 4 * * 1",
        tz="Asia/Tokyo",
        expires=timedelta(hours=3),
        because="kept from when it was registered",
        actor="job",
        catch_up=All(3),
        jitter=timedelta(seconds=90),
    )
    made = history("e", f"1 {wire.to_ms(START)} {spec(declared, 'work')}")
    assert made is not None and made.living.entry == declared and made.living.queue == "work"
