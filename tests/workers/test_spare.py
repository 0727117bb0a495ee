"""The spare: how its forks end, and what becomes of them when it does."""

from __future__ import annotations

import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from structlog.testing import capture_logs

from fleet.clock import clock
from fleet.declarations import Lane
from fleet.workers.board import Board
from fleet.workers.forks import Spare, SpareGone
from fleet.workers.isolation import Isolation
from fleet.workers.process import Child
from fleet.workers.rooms import Rooms
from tests.waiting import wait_until
from tests.workers.conftest import APP, Running
from tests.workers.test_up import LANE

# Stands for a machine whose limit of processes is reached, which whoever tests as root never meets.
NO_MORE_PROCESSES = """
import errno, os
from pathlib import Path
fork = os.fork
def refused():
    if Path({full!r}).exists():
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return fork()
os.fork = refused
"""

Supervise = Callable[..., Running]


def spare_of(lane: Running) -> psutil.Process | None:
    below = psutil.Process(lane.process.pid).children()
    return next((child for child in below if "fleet.workers.spare" in child.cmdline()), None)


def test_a_job_whose_process_was_killed_runs_again_in_a_fork_at_once(supervise: Supervise) -> None:
    lane = supervise()
    lane.ready(1)
    spare = wait_until(lambda: spare_of(lane), 30)
    lane.send("doomed")
    (begun,) = wait_until(lambda: lane.events("begin"), 30)
    os.kill(int(begun[2]), signal.SIGKILL)
    _, again = wait_until(lambda: len(lane.events("begin")) == 2 and lane.events("begin"), 10)
    assert psutil.Process(int(again[2])).ppid() == spare.pid
    lane.gate.touch()
    wait_until(lambda: lane.events("end"), 30)
    wait_until(lambda: lane.logged("suspect_runner_ended"), 30)


def test_a_killed_spare_is_replaced_and_its_forks_die_with_it(supervise: Supervise) -> None:
    lane = supervise()
    lane.ready(1)
    lane.send("doomed")
    (begun,) = wait_until(lambda: lane.events("begin"), 30)
    os.kill(int(begun[2]), signal.SIGKILL)
    _, again = wait_until(lambda: len(lane.events("begin")) == 2 and lane.events("begin"), 30)
    first = spare_of(lane)
    assert first is not None
    first.kill()
    wait_until(lambda: not psutil.pid_exists(int(again[2])), 30)
    wait_until(lambda: lane.logged("spare_died"), 30)
    second = wait_until(lambda: (found := spare_of(lane)) and found.pid != first.pid and found, 15)
    assert second.is_running()


def test_a_spare_that_an_import_gave_a_thread_forks_nothing_and_says_so(supervise: Supervise, tmp_path: Path) -> None:
    threaded = Path(shutil.copytree(APP, tmp_path / "threaded"))
    with (threaded / "actors" / "jobs.py").open("a") as source:
        source.write(
            "\nimport threading\nthreading.Thread(target=threading.Event().wait, daemon=True, name='x').start()\n"
        )
    lane = supervise(app=threaded)
    lane.ready(1)
    lane.send("doomed")
    (begun,) = wait_until(lambda: lane.events("begin"), 30)
    os.kill(int(begun[2]), signal.SIGKILL)
    (line, *_) = wait_until(lambda: lane.logged("spare_has_threads"), 15)
    assert "x" in line


@pytest.fixture
def lane_of_its_own(redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Lane:
    monkeypatch.setenv("FLEET_REDIS_URL", redis_url)
    monkeypatch.setenv("FLEET_NAMESPACE", namespace)
    lane = Lane.__new__(Lane)
    object.__setattr__(lane, "name", "jobs")
    return lane


@pytest.fixture
def ready(lane_of_its_own: Lane, tmp_path: Path) -> Iterator[Callable[[Path], Spare]]:
    """Starts spares of an application and waits until they can fork."""
    made: list[Spare] = []

    def start(app: Path) -> Spare:
        made.append(Spare(app, lane_of_its_own, str(tmp_path)))
        wait_until(lambda: made[-1].listen() or made[-1].ready, 20)
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture
def spare(ready: Callable[[Path], Spare]) -> Spare:
    return ready(APP)


@pytest.fixture
def board(tmp_path: Path) -> Callable[[int], Path]:
    """Makes the board of a fork."""

    def make(number: int) -> Path:
        made = Board.create(tmp_path / f"board-{number}", 1)
        made.worker_id = f"alone-{number}"
        return made.path

    return make


def test_a_fork_that_ends_is_heard_of_with_its_code_and_one_that_is_killed_with_its_signal(
    spare: Spare, board: Callable[[int], Path]
) -> None:
    quiet, killed = (spare.fork(board(number)) for number in range(2))
    killed.kill()
    assert killed.wait(5) == -signal.SIGKILL
    assert quiet.wait(15) == 0, "one that finds no suspect ends by itself"


@pytest.mark.parametrize("count", [1, 2])
def test_forks_of_a_spare_that_died_are_blamed_only_if_there_was_one(
    count: int, spare: Spare, board: Callable[[int], Path], tmp_path: Path
) -> None:
    forks = [spare.fork(board(number)) for number in range(count)]
    spare.process.kill()
    assert [fork.wait(5) for fork in forks] == [-signal.SIGKILL] * count
    assert [fork.blameless for fork in forks] == [count > 1] * count
    with pytest.raises(SpareGone):
        spare.fork(tmp_path / "another")


def test_the_only_fork_of_a_spare_that_was_killed_for_not_answering_is_not_blamed(
    spare: Spare, board: Callable[[int], Path]
) -> None:
    first = spare.fork(board(0))
    spare.process.send_signal(signal.SIGSTOP)
    with pytest.raises(SpareGone):
        spare.fork(board(1))
    assert first.wait(5) == -signal.SIGKILL
    assert first.blameless, "it was the supervisor's doing"
    wait_until(lambda: not psutil.pid_exists(first.pid), 5)


def test_a_signal_to_all_processes_of_a_lane_leaves_the_spare_until_its_forks_are_gone(
    spare: Spare, board: Callable[[int], Path]
) -> None:
    first = spare.fork(board(0))
    spare.process.terminate()
    second = spare.fork(board(1))
    assert {first.poll(), second.poll()} <= {None, 0}, "each lives, or found no suspect"


def test_a_fork_that_the_machine_refuses_takes_neither_the_spare_nor_its_other_forks_down(
    ready: Callable[[Path], Spare], board: Callable[[int], Path], tmp_path: Path
) -> None:
    app, full = Path(shutil.copytree(APP, tmp_path / "app")), tmp_path / "full"
    with (app / "actors" / "jobs.py").open("a") as source:
        source.write(NO_MORE_PROCESSES.format(full=str(full)))
    spare = ready(app)
    first = spare.fork(board(0))
    full.touch()
    with pytest.raises(BlockingIOError):
        spare.fork(board(1))
    assert first.poll() in (None, 0), "it lives, or found no suspect"
    full.unlink()
    assert spare.fork(board(2)).pid


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """This process can open so many more files and sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = [os.dup(0) for _ in range(count + 1)]
    for one in free:
        os.close(one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_spare_that_cannot_be_started_leaves_nothing_open(lane_of_its_own: Lane, tmp_path: Path) -> None:
    before = psutil.Process().num_fds()
    with descriptors_left(2), pytest.raises(OSError, match="Too many open files") as refused:
        Spare(APP, lane_of_its_own, str(tmp_path))
    assert psutil.Process().num_fds() == before, f"while {refused!r} keeps its frame alive"


def test_a_spare_that_cannot_be_started_is_tried_again_after_a_pause(lane_of_its_own: Lane) -> None:
    rooms = Rooms()
    child = Child(APP, LANE, rooms.boards, str(rooms.metrics))
    child.began = True
    isolation = Isolation(APP, LANE, rooms)
    before, now = len(psutil.Process().children()), clock.monotonic()
    try:
        with descriptors_left(0), capture_logs() as logs:
            assert isolation.start([child], now) == []
            assert isolation.start([child], now + 1) == []
        assert [(line["event"], line["what"]) for line in logs] == [("worker_not_started", "spare")]
        isolation.start([child], now + 4)
        assert len(psutil.Process().children()) == before
        isolation.start([child], now + 6)
        assert len(psutil.Process().children()) == before + 1
    finally:
        child.kill()
        child.process.wait()
        child.board.remove()
        isolation.close()
        rooms.remove()
