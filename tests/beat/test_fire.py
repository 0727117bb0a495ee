"""Each slot gets one verdict and at most one message, whoever leads and however late."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import redis
from structlog.testing import capture_logs

from beat import fire
from beat.fire import Firer
from beat.leader import Leader
from beat.now import Now
from fleet import Entry, ledger, wire
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.settings import Settings
from tests.beat.beaten import HOUR, MINUTE, SECOND, START, Beaten, StandingNight, into_a_second
from tests.broker.proxy import Proxy

Replica = Callable[..., Leader]
TWO = datetime(2026, 3, 2, 2, tzinfo=UTC)
HOURLY = Entry("hourly", cron="0 * * * *", expires=30 * MINUTE, because="a test needs slots", actor="job")
SECONDLY = Entry("secondly", every=SECOND, expires=HOUR, because="a test needs slots", actor="job")


class Term(Leader):
    """A leader that believes in its term whatever Redis says, as one between its check and its script does."""

    def leads(self) -> bool:
        return True


def test_a_new_entry_owes_nothing_from_before(
    night: StandingNight, broker: FleetBroker, leader: Leader, beaten: Beaten
) -> None:
    Firer(broker, leader, [HOURLY], Now()).pass_over()
    assert beaten.messages() == []
    (opening,) = beaten.lines("hourly")
    assert (opening.verdict, opening.count, f"{opening.first:%H:%M:%S}") == ("new", 0, "01:00:10")
    night.move_to(START + timedelta(minutes=59))
    Firer(broker, leader, [HOURLY], Now()).pass_over()
    assert beaten.messages() == [], "no slot has come since"


def test_a_slot_sends_one_message_whose_id_time_and_expiry_are_its_slots(
    night: StandingNight, broker: FleetBroker, leader: Leader, beaten: Beaten
) -> None:
    firer = Firer(broker, leader, [HOURLY], Now())
    firer.pass_over()
    night.move_to(TWO + 3 * SECOND)
    for _ in range(3):
        firer.pass_over()
    (message,) = beaten.messages()
    assert (message.actor_name, message.queue_name, message.args) == ("job", "work", ())
    assert message.message_id == message.options["redis_message_id"] == f"hourly@{wire.to_ms(TWO)}"
    assert message.options[wire.ENTRY] == "hourly"
    assert message.options[wire.SLOT] == wire.to_ms(TWO)
    assert message.options[wire.EXPIRES_AT] == wire.to_ms(TWO + 30 * MINUTE), "aged from its slot, not now"
    assert len(message.options[wire.NONCE]) == 32
    assert message.message_timestamp == wire.to_ms(clock.to_real_instant(TWO))
    line = beaten.lines("hourly")[-1]
    assert (line.verdict, line.first, line.last, line.count) == ("fired", TWO, TWO, 1)
    assert (line.token, line.epoch, line.revision) == (leader.token, 1, 1)


def test_without_a_night_a_slots_message_has_its_slot_as_its_time(
    broker: FleetBroker, leader: Leader, beaten: Beaten
) -> None:
    firer = Firer(broker, leader, [SECONDLY], Now())
    firer.pass_over()
    before = clock.real_now()
    clock.sleep(1.05 * SECOND)
    firer.pass_over()
    message = beaten.messages()[-1]
    assert message.message_timestamp == message.options[wire.SLOT]
    assert wire.to_ms(before) < message.message_timestamp <= wire.to_ms(clock.real_now())


def test_each_fire_draws_a_nonce_of_its_own(
    night: StandingNight, broker: FleetBroker, leader: Leader, beaten: Beaten
) -> None:
    firer = Firer(broker, leader, [SECONDLY], Now())
    firer.pass_over()
    for _ in range(3):
        night.shift(SECOND)
        firer.pass_over()
    assert len({message.options[wire.NONCE] for message in beaten.messages()}) == 3


@pytest.mark.parametrize(("late", "verdict"), [(29, "fired"), (31, "expired")])
def test_a_slot_fires_up_to_its_expiry_and_never_after(
    night: StandingNight, broker: FleetBroker, leader: Leader, beaten: Beaten, late: int, verdict: str
) -> None:
    firer = Firer(broker, leader, [HOURLY], Now())
    firer.pass_over()
    night.move_to(TWO + late * MINUTE)
    firer.pass_over()
    firer.pass_over()
    assert beaten.verdicts("hourly") == [(verdict, "02:00:00", "02:00:00", 1)]
    assert len(beaten.messages()) == (verdict == "fired")


def test_a_clock_set_back_fires_no_slot_again(
    night: StandingNight, broker: FleetBroker, leader: Leader, beaten: Beaten
) -> None:
    firer = Firer(broker, leader, [HOURLY], Now())
    firer.pass_over()
    for minutes in (61, 30, 61):
        night.move_to(START + timedelta(minutes=minutes))
        firer.pass_over()
    assert len(beaten.messages()) == 1


def test_a_deposed_leader_that_still_believes_in_its_term_sends_nothing_and_moves_nothing(
    night: StandingNight, broker: FleetBroker, leader: Leader, beaten: Beaten, redis_client: redis.Redis
) -> None:
    Firer(broker, leader, [HOURLY], Now()).pass_over()
    deposed = Term(redis_client, broker.namespace, ttl=6 * SECOND, renewal=2 * SECOND)
    night.move_to(START + HOUR)
    stale = Firer(broker, deposed, [HOURLY], Now())
    stale.register()
    before = {key: value for key, value in beaten.everything().items() if not key.endswith(b"schedule")}
    stale.pass_over()
    after = {key: value for key, value in beaten.everything().items() if not key.endswith(b"schedule")}
    assert beaten.messages() == [] and after == before
    Firer(broker, leader, [HOURLY], Now()).pass_over()
    assert len(beaten.messages()) == 1, "the slot is still the leader's to fire"


def test_a_leader_in_its_second_term_does_not_send_what_it_made_in_its_first(
    night: StandingNight, broker: FleetBroker, leader: Leader, beaten: Beaten, redis_client: redis.Redis
) -> None:
    firer = Firer(broker, leader, [HOURLY], Now())
    firer.pass_over()
    night.move_to(START + HOUR)
    redis_client.incr(keys.epoch(broker.namespace))
    firer.pass_over()
    assert beaten.messages() == []
    leader.epoch = 2
    firer.pass_over()
    assert len(beaten.messages()) == 1


def test_a_follower_registers_its_schedule_and_judges_nothing(
    night: StandingNight, broker: FleetBroker, beaten: Beaten, redis_client: redis.Redis
) -> None:
    follower = Leader(redis_client, broker.namespace, ttl=6 * SECOND, renewal=2 * SECOND)
    firer = Firer(broker, follower, [HOURLY, SECONDLY], Now())
    firer.pass_over()
    night.shift(HOUR)
    firer.pass_over()
    assert beaten.events("hourly") == beaten.events("secondly") == ["new"]
    assert beaten.messages() == []


class Overtaken(Firer):
    """Is overtaken by another replica after it read what there is, and before it sends."""

    overtaken_by: Firer | None = None

    def _run(self, calls: list[fire.Call]) -> list[object]:
        by, self.overtaken_by = self.overtaken_by, None
        if by is not None:
            by.pass_over()
        return super()._run(calls)


def test_a_mark_that_moved_meanwhile_sends_nothing_and_the_rest_is_reckoned_anew(
    night: StandingNight, broker: FleetBroker, leader: Leader, beaten: Beaten
) -> None:
    firer, late = Firer(broker, leader, [HOURLY], Now()), Overtaken(broker, leader, [HOURLY], Now())
    firer.pass_over()
    night.move_to(START + HOUR)
    late.overtaken_by = firer
    late.pass_over()
    assert beaten.verdicts("hourly") == [("fired", "02:00:00", "02:00:00", 1)]
    assert len(beaten.messages()) == 1


def test_a_message_that_expires_between_the_reckoning_and_the_script_is_not_sent(
    night: StandingNight, broker: FleetBroker, leader: Leader, beaten: Beaten, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the leader is stopped there: the script judges by the server's time, not by what the leader thought."""
    firer = Firer(broker, leader, [HOURLY], Now())
    firer.pass_over()
    night.move_to(TWO + 5 * MINUTE)
    asked = firer._stored.night

    def later() -> tuple[int, int, float]:
        at, in_the_night, rate = asked()
        return at, in_the_night + wire.duration_ms(26 * MINUTE), rate

    monkeypatch.setattr(firer._stored, "night", later)
    firer.pass_over()
    assert beaten.verdicts("hourly") == [("expired", "02:00:00", "02:00:00", 1)]
    assert beaten.messages() == []


@pytest.mark.parametrize(("ahead", "fires"), [(1.5, True), (3, False)])
def test_a_slot_more_than_two_seconds_ahead_of_the_servers_time_is_refused(
    broker: FleetBroker,
    leader: Leader,
    beaten: Beaten,
    ahead: float,
    fires: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    firer = Firer(broker, leader, [SECONDLY], Now())
    firer.pass_over()
    true = firer._stored.instant
    skew = ahead * SECOND

    def fast() -> fire.Instant:
        at = true()
        # One slot exactly so far ahead, so that the test does not hang on where in the second it began.
        return fire.Instant(at.now, (at.now + skew).replace(microsecond=0) + SECOND * (ahead > 2), at.rate)

    monkeypatch.setattr(firer._stored, "instant", fast)
    with capture_logs() as logs:
        firer.pass_over()
    assert bool(beaten.messages()) == fires
    assert any("too early" in line.get("error", "") for line in logs) != fires


def test_an_expired_verdict_that_the_servers_clock_does_not_share_is_refused(
    night: StandingNight, broker: FleetBroker, leader: Leader, beaten: Beaten, monkeypatch: pytest.MonkeyPatch
) -> None:
    firer = Firer(broker, leader, [HOURLY], Now())
    firer.pass_over()
    night.move_to(TWO + MINUTE)
    true = firer._stored.instant
    monkeypatch.setattr(firer._stored, "instant", lambda: fire.Instant(true().now + HOUR, true().due, true().rate))
    firer.pass_over()
    assert beaten.verdicts("hourly") == []


@pytest.mark.parametrize(("leaps", "verdict"), [(29, "expired"), (-29, None), (31, None), (3600, None), (-3600, None)])
def test_a_leap_of_the_servers_clock_that_nobody_has_noticed_yet_expires_nothing(
    broker: FleetBroker,
    leader: Leader,
    beaten: Beaten,
    redis_client: redis.Redis,
    leaps: int,
    verdict: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Up to 30 s are another server's clock after a failover, and taken as they are."""
    firer = Firer(broker, leader, [replace(SECONDLY, expires=10 * SECOND)], Now())
    asked = firer._stored.night

    def before_the_leap() -> tuple[int, int, float]:
        at, in_the_night, rate = asked()
        return at - leaps * 1_000, in_the_night, rate

    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(firer._stored, "night", before_the_leap)
        into_a_second(share=0.2)
        firer.pass_over()
        marks = redis_client.hgetall(keys.marks(broker.namespace))
        clock.sleep(1.05 * SECOND)
        firer.pass_over()
    assert [line[0] for line in beaten.verdicts("secondly")] == ([verdict] if verdict else [])
    if abs(leaps) > 30:
        assert {line["reason"] for line in logs if line["event"] == "slots_not_judged"} == {"leapt"}
        assert redis_client.hgetall(keys.marks(broker.namespace)) == marks
        firer.pass_over()
        assert [line[0] for line in beaten.verdicts("secondly")] in (["fired"], ["coalesced", "fired"])


def test_two_replicas_that_race_for_many_slots_send_one_message_a_slot(
    night: StandingNight,
    broker: FleetBroker,
    leader: Leader,
    beaten: Beaten,
    redis_client: redis.Redis,
    redis_url: str,
) -> None:
    """Both hold the leader's very token: only the mark can part them."""
    other = FleetBroker(lambda: Settings(redis_url=redis_url, namespace=broker.namespace), middleware=[])
    other.actors, other.queues = broker.actors, broker.queues
    twin = Term(redis_client, broker.namespace, ttl=6 * SECOND, renewal=2 * SECOND)
    twin.token, twin.epoch = leader.token, leader.epoch
    slots = 150
    moment = iter(START + number * SECOND for number in range(1, slots + 1))

    def race(firer: Firer) -> None:
        for _ in range(slots):
            start.wait(10)
            firer.pass_over()

    firers = [Firer(broker, leader, [SECONDLY], Now()), Firer(other, twin, [SECONDLY], Now())]
    firers[0].pass_over()
    # The barrier's last arrival moves time on, so that both pass over the same new slot at once.
    start = threading.Barrier(2, action=lambda: night.move_to(next(moment)))
    racers = [threading.Thread(target=race, args=(firer,)) for firer in firers]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
    expected = [START + number * SECOND for number in range(1, slots + 1)]
    assert beaten.slots() == expected
    assert beaten.judged(SECONDLY) == expected


@pytest.fixture
def skipping(broker: FleetBroker, leader: Leader, night: StandingNight) -> Firer:
    entry = Entry("skips", every=MINUTE, expires=MINUTE, because="a test needs slots", actor="job", overlap="skip")
    firer = Firer(broker, leader, [entry], Now())
    firer.pass_over()
    return firer


def test_a_slot_whose_run_before_is_still_in_its_queue_is_overlapped_and_the_next_one_is_not(
    skipping: Firer, night: StandingNight, beaten: Beaten
) -> None:
    for minute in (1, 2, 3):
        night.move_to(START + minute * MINUTE)
        skipping.pass_over()
        if minute == 2:
            beaten.end_all()
    assert [line[0] for line in beaten.verdicts("skips")] == ["fired", "overlapped", "fired"]
    assert len(beaten.messages()) == 1


def test_a_run_that_a_worker_holds_overlaps_too(
    skipping: Firer, night: StandingNight, beaten: Beaten, redis_client: redis.Redis, broker: FleetBroker
) -> None:
    night.move_to(START + MINUTE)
    skipping.pass_over()
    redis_client.delete(keys.queue(broker.namespace, "work"))  # fetched: its body stays until it has ended
    night.move_to(START + 2 * MINUTE)
    skipping.pass_over()
    assert [line[0] for line in beaten.verdicts("skips")] == ["fired", "overlapped"]


def test_an_entry_that_may_overlap_fires_beside_its_last_run(
    night: StandingNight, broker: FleetBroker, leader: Leader, beaten: Beaten
) -> None:
    firer = Firer(broker, leader, [SECONDLY], Now())
    firer.pass_over()
    for second in (1, 2):
        night.move_to(START + second * SECOND)
        firer.pass_over()
    assert len(beaten.messages()) == 2


def test_an_entry_is_due_its_share_of_jitter_after_its_slot_and_its_slot_stays(
    night: StandingNight, broker: FleetBroker, leader: Leader, beaten: Beaten
) -> None:
    from fleet.slots import offset

    spread = Entry(
        "spread", cron="0 * * * *", expires=HOUR, because="a test needs slots", actor="job", jitter=30 * MINUTE
    )
    share = offset(spread)
    assert MINUTE < share < 30 * MINUTE
    firer = Firer(broker, leader, [spread], Now())
    firer.pass_over()
    night.move_to(TWO + share - SECOND)
    firer.pass_over()
    assert beaten.verdicts("spread") == []
    night.move_to(TWO + share)
    firer.pass_over()
    assert beaten.slots() == [TWO]


def test_a_pass_in_which_nothing_is_due_asks_redis_as_much_for_a_thousand_entries_as_for_one(
    night: StandingNight, broker: FleetBroker, beaten: Beaten, redis_client: redis.Redis
) -> None:
    trusted = Term(broker.client, broker.namespace, ttl=60 * SECOND, renewal=2 * SECOND)  # no thread of its own asks
    redis_client.set(keys.leader(broker.namespace), trusted.token)
    trusted.epoch = redis_client.incr(keys.epoch(broker.namespace))
    many = [replace(HOURLY, name=f"hourly-{number}") for number in range(1_000)]
    firer = Firer(broker, trusted, many, Now())
    firer.pass_over()

    def asked(*names: str) -> int:
        before = redis_client.info("stats")["total_commands_processed"]
        firer.pass_over(names or None)
        return int(redis_client.info("stats")["total_commands_processed"] - before)

    asked()
    assert asked() <= 6  # the look, what it does in the server, and this test's own question
    assert asked("hourly-1") <= 1, "a ring asked whether anything is due"
    night.move_to(TWO)
    assert asked() > 1_000
    assert asked() <= 6, "what it fired itself is no reason to read all marks again"


def test_an_entry_that_fails_is_said_once_and_the_others_go_on(
    night: StandingNight, broker: FleetBroker, leader: Leader, beaten: Beaten, redis_client: redis.Redis
) -> None:
    bad = [Entry(name, every=SECOND, expires=HOUR, because="a test needs slots", actor="job") for name in ("a", "z")]
    firer = Firer(broker, leader, [*bad, SECONDLY], Now())
    firer.pass_over()
    for entry in bad:
        redis_client.set(keys.ledger(broker.namespace, entry.name), "no stream")
    marks = redis_client.hgetall(keys.marks(broker.namespace))
    with capture_logs() as logs:
        for second in (1, 3, 5):
            night.move_to(START + second * SECOND)
            firer.pass_over()
    said = [line["entry"] for line in logs if line["event"] == "entry_not_judged"]
    assert said == ["a", "z"]
    assert len(beaten.messages()) == 3, "a script that failed half-way left something"
    for name in (b"a", b"z"):
        assert redis_client.hget(keys.marks(broker.namespace), name) == marks[name]
    redis_client.delete(keys.ledger(broker.namespace, "a"))
    night.move_to(START + 7 * SECOND)
    firer.pass_over()
    assert beaten.judged(bad[0]) == [START + number * SECOND for number in range(1, 8)], "nothing was lost by it"


def test_a_row_that_cannot_be_read_is_said_and_the_others_go_on(
    night: StandingNight, broker: FleetBroker, leader: Leader, beaten: Beaten, redis_client: redis.Redis
) -> None:
    firer = Firer(broker, leader, [HOURLY, SECONDLY], Now())
    firer.pass_over()
    redis_client.hset(keys.revisions(broker.namespace), "hourly", "no revision")
    redis_client.hincrby(keys.schedule(broker.namespace), "generation", 1)
    night.move_to(START + SECOND)
    with capture_logs() as logs:
        firer.pass_over()
    assert [line["entry"] for line in logs if line["event"] == "entry_unreadable"] == ["hourly"]
    assert len(beaten.messages()) == 1


@pytest.mark.parametrize("key", ["queue", "bodies", "awaited", "ledger"])
def test_a_key_of_another_type_is_found_before_anything_is_written(
    night: StandingNight, broker: FleetBroker, leader: Leader, beaten: Beaten, redis_client: redis.Redis, key: str
) -> None:
    ns = broker.namespace
    named = {
        "queue": keys.queue(ns, "work"),
        "bodies": keys.bodies(ns, "work"),
        "awaited": keys.awaited(ns),
        "ledger": keys.ledger(ns, "hourly"),
    }
    firer = Firer(broker, leader, [HOURLY], Now())
    firer.pass_over()
    redis_client.delete(named[key])
    redis_client.set(named[key], "of another type")
    before = beaten.everything()
    night.move_to(TWO)
    firer.pass_over()
    after = beaten.everything()
    after.pop(keys.schedule(ns).encode()), before.pop(keys.schedule(ns).encode())
    assert after == before


def test_a_consumer_that_waits_for_the_queue_is_woken(
    night: StandingNight, broker: FleetBroker, leader: Leader, redis_client: redis.Redis
) -> None:
    firer = Firer(broker, leader, [HOURLY], Now())
    firer.pass_over()
    redis_client.sadd(keys.awaited(broker.namespace), "work")
    with redis_client.pubsub() as heard:
        heard.subscribe(keys.wake(broker.namespace))
        heard.get_message(timeout=5)
        night.move_to(TWO)
        firer.pass_over()
        told = heard.get_message(timeout=5)
    assert told is not None and told["data"] == b"work"
    assert not redis_client.sismember(keys.awaited(broker.namespace), "work")


@pytest.mark.parametrize("lost", ["lose_reply", "lose_request"])
def test_a_fire_whose_reply_or_request_was_lost_is_sent_once(
    night: StandingNight,
    broker: FleetBroker,
    leader: Leader,
    beaten: Beaten,
    redis_url: str,
    lost: str,
) -> None:
    with Proxy(redis_url) as proxy:
        behind = FleetBroker(url=proxy.url, namespace=broker.namespace, middleware=[])
        behind.actors = broker.actors
        firer = Firer(behind, leader, [HOURLY], Now())
        firer.pass_over()
        night.move_to(TWO)
        firer._stored.look()
        getattr(proxy, lost)()
        with pytest.raises(redis.ConnectionError):
            firer.pass_over(["hourly"])
        assert proxy.lost
        firer.pass_over()
    assert beaten.verdicts("hourly") == [("fired", "02:00:00", "02:00:00", 1)]
    assert len(beaten.messages()) == 1


def test_a_redis_that_forgot_its_scripts_is_given_them_again(
    night: StandingNight, broker: FleetBroker, leader: Leader, beaten: Beaten, redis_client: redis.Redis
) -> None:
    firer = Firer(broker, leader, [SECONDLY], Now())
    firer.pass_over()
    for second in (1, 2):
        night.move_to(START + second * SECOND)
        firer.pass_over()
        redis_client.script_flush()
    assert len(beaten.messages()) == 2


class Leaping(Now):
    """Hears a server whose clock is off by so much."""

    off = timedelta(0)

    def heard(self, server: float, sent: float, received: float) -> None:
        super().heard(server + self.off.total_seconds(), sent, received)


def test_a_servers_clock_that_leaps_and_comes_back_has_fired_nothing_and_is_said_once(
    broker: FleetBroker, leader: Leader, beaten: Beaten, redis_client: redis.Redis
) -> None:
    now = Leaping()
    firer = Firer(broker, leader, [SECONDLY], now)
    firer.pass_over()
    now.off = HOUR
    with capture_logs() as logs:
        for _ in range(12):
            firer.pass_over()
            firer.pass_over(["secondly"])
            clock.sleep(SECOND / 10)
        redis_client.delete(keys.schedule(broker.namespace))
        firer.pass_over()
        assert beaten.verdicts("secondly") == []
        assert not redis_client.exists(keys.schedule(broker.namespace)), "registered by a clock in doubt"
        now.off = timedelta(0)
        firer.pass_over()
    assert len(beaten.messages()) == 1
    events = [line["event"] for line in logs if "clock" in line["event"]]
    assert events == ["server_clock_jumped", "server_clock_came_back"]


def test_a_time_that_cannot_be_is_never_believed(
    night: StandingNight, broker: FleetBroker, leader: Leader, beaten: Beaten
) -> None:
    firer = Firer(broker, leader, [HOURLY], Now())
    firer.pass_over()
    night.move_to(datetime(2200, 1, 1, tzinfo=UTC))
    with capture_logs() as logs:
        firer.pass_over()
        Firer(broker, leader, [HOURLY], Now()).pass_over()
    assert beaten.verdicts("hourly") == []
    assert "the server says 2200-01-01, but its last slot was judged in 2026" in str(logs)
    night.move_to(TWO)
    Firer(broker, leader, [HOURLY], Now()).pass_over()
    assert [line[0] for line in beaten.verdicts("hourly")] == ["fired"], "it went silent"


def test_a_ledger_keeps_its_last_lines_and_lets_the_others_go(
    night: StandingNight,
    broker: FleetBroker,
    leader: Leader,
    beaten: Beaten,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fire, "LEDGER_LENGTH", 50)
    firer = Firer(broker, leader, [SECONDLY], Now())
    firer.pass_over()
    for second in range(1, 301):
        night.move_to(START + second * SECOND)
        firer.pass_over()
    assert 50 <= len(beaten.lines("secondly")) <= 200
    assert beaten.lines("secondly")[-1].last == START + 300 * SECOND


def test_all_that_the_beat_leaves_for_ever_is_on_the_list_of_permanent_keys(
    night: StandingNight, broker: FleetBroker, leader: Leader, redis_client: redis.Redis
) -> None:
    firer = Firer(broker, leader, [HOURLY], Now())
    firer.pass_over()
    night.move_to(TWO)
    firer.pass_over()
    ns = broker.namespace
    listed = {key(ns) for key in keys.PERMANENT} | {keys.ledger(ns, "hourly")}
    listed |= {keys.queue(ns, "work"), keys.bodies(ns, "work")}
    forever = {key.decode() for key in redis_client.scan_iter(f"{ns}:*") if redis_client.ttl(key) == -1}
    assert len(forever) > 5 and forever <= listed


def test_a_line_of_the_ledger_says_all_that_it_was_told(
    night: StandingNight, broker: FleetBroker, leader: Leader, redis_client: redis.Redis
) -> None:
    firer = Firer(broker, leader, [HOURLY], Now())
    firer.pass_over()
    night.move_to(TWO)
    firer.pass_over()
    (last,) = ledger.read(redis_client, broker.namespace, "hourly", most=1)
    assert abs(clock.real_now() - last.at) < 10 * SECOND
    assert last.judges and last.by == ""
