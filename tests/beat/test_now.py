"""The beat's time is the server's, whatever the machine's own clock does; a server's clock that jumps is doubted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from beat.now import Now
from fleet.clock import Night, clock

START = datetime(2026, 3, 2, 3, tzinfo=UTC)
HOUR = 3600.0
TO_2200 = 174 * 365.25 * 24 * HOUR


class World:
    """Three clocks that a test moves: the monotonic one, the machine's and the server's."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.wall_off = self.server_off = 0.0
        self.now = Now(lambda: self.elapsed, lambda: START + timedelta(seconds=self.elapsed + self.wall_off))
        self.set_again = 0
        self.hear()

    def hear(self, took: float = 0.0, answered_after: float = 0.0) -> None:
        sent = self.elapsed
        server = START.timestamp() + sent + answered_after + self.server_off
        self.elapsed += took
        self.now.heard(server, sent, self.elapsed)
        self.set_again += self.now.moved()

    def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.elapsed += 1.0
            self.hear()

    def off(self) -> float:
        """Seconds by which the beat's time is beside the true one."""
        return (self.now.now() - START).total_seconds() - self.elapsed


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("by", [HOUR, -HOUR, TO_2200, 5.0, -5.0])
def test_a_wall_clock_that_jumps_and_comes_back_moves_nothing_and_is_said_once_each(world: World, by: float) -> None:
    world.pass_seconds(5)
    assert world.set_again == 1, "when the server's time was first known"
    with capture_logs() as logs:
        world.wall_off = by
        assert abs(world.off()) < 1e-3, "already before the next pass"
        world.pass_seconds(20)
        assert abs(world.off()) < 1e-3
        assert world.set_again == 2
        world.wall_off = 0.0
        world.pass_seconds(20)
    assert abs(world.off()) < 1e-3
    assert world.set_again == 3
    assert [line["event"] for line in logs] == ["wall_clock_jumped"] * 2
    assert logs[0]["by"] == str(timedelta(seconds=abs(round(by)))).join(["-" if by < 0 else "", ""])


def test_where_a_slot_lies_on_a_wall_clock_that_is_wrong(world: World) -> None:
    world.wall_off = -HOUR
    world.hear()
    slot = START + timedelta(minutes=10)
    assert abs(world.now.to_wall(slot) - (slot - timedelta(hours=1))) < timedelta(milliseconds=1)


@pytest.mark.parametrize("by", [5.0, -5.0, 29.0, -29.0])
def test_a_server_a_few_seconds_off_is_followed_at_once_as_after_a_failover(world: World, by: float) -> None:
    world.server_off = by
    world.hear()
    assert abs(world.off() - by) < 1e-3
    assert world.now.doubt is None


@pytest.mark.parametrize("by", [HOUR, -HOUR, TO_2200])
def test_a_server_that_jumps_and_comes_back_is_doubted_and_moves_nothing(world: World, by: float) -> None:
    with capture_logs() as logs:
        world.server_off = by
        world.pass_seconds(50)
        assert abs(world.off()) < 1e-3
        assert world.now.doubt is not None and "the clock of Redis jumped by" in world.now.doubt
        world.server_off = 0.0
        world.hear()
    assert world.now.doubt is None
    assert [line["event"] for line in logs] == ["server_clock_jumped", "server_clock_came_back"]


@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_a_server_that_stays_where_it_jumped_is_believed_after_a_minute(world: World, by: float) -> None:
    world.server_off = by
    with capture_logs() as logs:
        world.pass_seconds(62)
    assert world.now.doubt is None
    assert abs(world.off() - by) < 1e-3
    assert [line["event"] for line in logs] == ["server_clock_jumped", "server_clock_believed"]


def test_a_server_that_stays_in_2200_is_never_believed(world: World) -> None:
    world.server_off = TO_2200
    world.pass_seconds(1000)
    assert world.now.doubt is not None
    assert abs(world.off()) < 1e-3


def test_a_server_that_jumps_about_is_not_believed_for_the_sum_of_its_stays(world: World) -> None:
    for place in (HOUR, 2 * HOUR, 3 * HOUR):
        world.server_off = place
        world.pass_seconds(50)
    assert world.now.doubt is not None


@given(
    st.lists(
        st.tuples(st.floats(0.0, 2.0), st.floats(0.0, 1.0), st.floats(0.0, 5.0)).map(
            lambda drawn: (drawn[0], drawn[0] * drawn[1], drawn[2])
        ),
        max_size=50,
    )
)
def test_slow_answers_bring_no_jitter_into_a_time_that_was_known(answers: list[tuple[float, float, float]]) -> None:
    world = World()
    before = world.off()
    for took, answered_after, pause in answers:
        world.elapsed += pause
        world.hear(took, answered_after)
        assert abs(world.off() - before) < 1e-3


def test_a_night_is_reckoned_from_the_servers_time(world: World) -> None:
    clock.set_night(Night(origin=START, anchor=START, rate=240.0))
    try:
        world.elapsed += 1.0
        assert abs(world.now.now() - (START + timedelta(minutes=4))) < timedelta(milliseconds=1)
        world.wall_off = HOUR
        world.hear()
        slot = START + timedelta(minutes=8)
        wall = START + timedelta(seconds=2) + timedelta(hours=1)
        assert abs(world.now.to_wall(slot) - wall) < timedelta(milliseconds=1)
    finally:
        clock.set_night(None)


def test_it_asks_a_real_server(redis_client: redis.Redis) -> None:
    now = Now()
    assert now.ask(lambda: [*redis_client.time(), b"the rest"]) == [b"the rest"]
    assert (now.moved(), now.moved()) == (True, False)
    assert abs(now.now() - datetime.now(UTC)) < timedelta(seconds=1)
