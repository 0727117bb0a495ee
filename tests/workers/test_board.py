"""The in-flight board, read while another process writes it, is stopped, hangs with the GIL held, or is killed."""

from __future__ import annotations

import os
import random
import signal
import stat
import sys
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import pytest

from fleet.workers.board import Board, BoardUnreadable, ChildPhase, Phase, Slot
from tests.waiting import wait_until
from tests.workers.board_process import ROUNDS, THREADS, begin, running, whole

BEGUN, RETURNED = (Phase.BODY, True), (Phase.PREFETCHED, False)
LONGEST = 20.0  # seconds until it is said that one of the two was never met


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "board"


@pytest.fixture
def board(path: Path) -> Iterator[Board]:
    board = Board.create(path, THREADS)
    yield board
    board.remove()


@pytest.mark.parametrize("reads", [50_000, pytest.param(200_000, marks=pytest.mark.soak)])
def test_of_many_reads_of_a_writer_at_full_speed_none_is_torn_and_none_goes_back(board: Board, reads: int) -> None:
    latest = dict.fromkeys(range(THREADS), (0, Phase.IDLE))
    accepted: dict[Phase, int] = dict.fromkeys(Phase, 0)
    with running("write_at_full_speed", board):
        for turn in range(reads):
            slot = board.read(turn % THREADS)
            if slot is None:
                continue
            assert whole(slot), slot
            accepted[slot.phase] += 1
            if slot.phase is not Phase.IDLE:
                assert latest[slot.number] <= (slot.delivery, slot.phase)
                latest[slot.number] = (slot.delivery, slot.phase)
    assert sum(accepted.values()) > 0.95 * reads
    assert all(accepted.values())


def test_every_slot_of_a_child_stopped_at_any_moment_is_whole(board: Board) -> None:
    phases: set[Phase] = set()
    with running("write_at_full_speed", board) as child:
        for _ in range(200):
            child.send_signal(signal.SIGSTOP)
            assert os.WIFSTOPPED(os.waitpid(child.pid, os.WUNTRACED)[1])
            slots = board.read_stopped()
            assert [slot.number for slot in slots] == list(range(THREADS))
            assert all(whole(slot) for slot in slots), slots
            assert board.read_stopped() == board.read_all() == slots
            assert len(set(board.worker_id)) <= 1
            phases.update(slot.phase for slot in slots)
            child.send_signal(signal.SIGCONT)
            time.sleep(random.random() / 1000)  # so that it is stopped anywhere
    assert Phase.PREFETCHED in phases and Phase.BODY in phases


@pytest.mark.parametrize("turn", range(5))
def test_every_slot_of_a_killed_child_is_whole(board: Board, turn: int) -> None:
    with running("write_at_full_speed", board) as child:
        child.kill()
        child.wait()
    slots = board.read_stopped()
    assert len(slots) == THREADS and all(whole(slot) for slot in slots), slots
    assert board.read_all() == slots


def test_a_child_that_holds_the_gil_is_read(board: Board) -> None:
    with running("hold_the_gil", board):
        turned: list[float] = []

        def hangs() -> bool:
            turned.append(board.turned_at)
            return turned[-10:] == turned[-1:] * 10

        wait_until(hangs)
        slot = board.read(0)
        assert slot is not None and whole(slot)
        assert (slot.delivery, slot.phase) == (7, Phase.BODY)


@pytest.mark.parametrize("seconds", [6, pytest.param(20, marks=pytest.mark.soak)])
def test_no_message_that_the_reader_returns_after_it_set_retire_has_begun(
    board: Board, path: Path, seconds: float
) -> None:
    reader = Board.create(Path(f"{path}-reader"), 1)
    seen: dict[tuple[Phase, bool], int] = {}
    wait, since = 0, time.monotonic()
    words, word = board._words, board._at(0) // 8  # looked at at once: `read` would look 0.3 µs later
    with running("ask_whether_to_begin", board) as child:
        for number in range(1, ROUNDS + 1):
            spent = time.monotonic() - since  # two processes that wait for each other on one core are slow
            if spent > seconds and ({BEGUN, RETURNED} <= seen.keys() or spent > LONGEST):
                break
            while board.jobs < number:
                assert child.poll() is None
            reader.jobs = number
            for _ in range(wait + number * 7 % 61):
                pass
            board.retire = True
            generation = words[word]
            while board.turned_at < number:
                pass
            began = board.turned_at == number + 0.25
            board.retire = False
            reader.turned_at = number
            result = Phase(generation & 3), began
            seen[result] = seen.get(result, 0) + 1
            wait = max(0, wait + (-1 if began else 1))  # towards where both come at once
    reader.remove()
    assert (Phase.PREFETCHED, True) not in seen, seen
    assert {BEGUN, RETURNED} <= seen.keys(), seen


def test_a_message_goes_through_its_phases(board: Board) -> None:
    writer = board.writer(1)
    assert board.read(1) == Slot(1, Phase.IDLE)
    begin(writer, 88)
    for step, phase in ((None, Phase.PREFETCHED), (writer.body, Phase.BODY), (writer.ending, Phase.ENDING)):
        assert step is None or not step()
        slot = board.read(1)
        assert slot is not None and slot.phase is phase and slot.delivery == 88 and whole(slot)
    assert board.read(0) == Slot(0, Phase.IDLE)
    writer.clear()
    assert board.read_all() == [Slot(0, Phase.IDLE), Slot(1, Phase.IDLE)]


def test_a_body_that_may_not_begin_is_prefetched_still(board: Board) -> None:
    writer = board.writer(0)
    begin(writer)
    board.retire = True
    assert writer.body()
    slot = board.read(0)
    assert slot is not None and slot.phase is Phase.PREFETCHED
    board.retire = False
    assert not writer.body()


def test_an_id_of_any_bytes_comes_back(board: Board) -> None:
    writer = board.writer(0)
    for raw in (b"\xff\xfe\x00id", "grün-…".encode(), b"", b"x" * 96, b"\x80" * 96):
        begin(writer, id=raw.decode(errors="surrogateescape"))
        slot = board.read(0)
        assert slot is not None and slot.id is not None
        assert slot.id.encode(errors="surrogateescape") == raw
        assert slot.digest == blake2b(raw, digest_size=16).digest()


def test_an_id_that_does_not_fit_is_told_by_its_digest(board: Board) -> None:
    writer = board.writer(0)
    raw = b"\xff" + b"x" * 96
    begin(writer, id=raw.decode(errors="surrogateescape"))
    slot = board.read(0)
    assert slot is not None
    assert (slot.id, slot.digest) == (None, blake2b(raw, digest_size=16).digest())


@pytest.mark.parametrize("message_id", ["m" * 97, "\ud800"])
def test_a_message_id_that_cannot_be_stored_is_left_out(board: Board, message_id: str) -> None:
    begin(board.writer(0), message_id=message_id)
    slot = board.read(0)
    assert slot is not None and slot.message_id is None


def test_long_names_are_cut_at_a_character_and_marked(board: Board) -> None:
    writer = board.writer(0)
    begin(writer, queue="ü" * 33, actor="x" * 97)
    slot = board.read(0)
    assert slot is not None
    assert (slot.queue, slot.actor) == ("ü" * 30 + "…", "x" * 93 + "…")
    begin(writer, queue="ü" * 32, actor="\ud800")
    slot = board.read(0)
    assert slot is not None
    assert (slot.queue, slot.actor) == ("ü" * 32, "?")


def test_names_change_from_message_to_message(board: Board) -> None:
    writer = board.writer(0)
    for name in ("a", "b", "b", "b", "a", "c", "a", "a", "c", *(f"n{number}" for number in range(2000)), "a", "b"):
        begin(writer, actor=name, queue=name)
        slot = board.read(0)
        assert slot is not None and (slot.actor, slot.queue) == (name, name)


def test_a_second_writer_of_a_slot_goes_on_where_it_stands(board: Board) -> None:
    for delivery in range(1, 6):
        begin(board.writer(0), delivery)
        slot = board.read(0)
        assert slot is not None and whole(slot) and slot.delivery == delivery


def test_a_slot_that_the_child_spoilt_keeps_its_phase_alone(board: Board, path: Path) -> None:
    writer = board.writer(1)
    begin(writer, 12)
    writer.body()
    raw = bytearray(path.read_bytes())
    place = raw.index(b"12-12-12")
    for changed in (place, place - 190):  # a byte of the message id, one of the names
        with path.open("r+b") as file:
            file.seek(changed)
            file.write(b"!")
        assert board.read(1) is None
        assert board.read_all() == [Slot(0, Phase.IDLE)]
        assert board.read_stopped() == [Slot(0, Phase.IDLE), Slot(1, Phase.BODY)]
        with path.open("r+b") as file:
            file.seek(changed)
            file.write(raw[changed : changed + 1])
        assert board.read(1) is not None


def test_both_sides_see_the_header(board: Board, path: Path) -> None:
    child = Board.open(path)
    head = (board.worker_id, board.retire, board.turned_at, board.jobs, board.phase_of_child)
    assert head == ("", False, 0.0, 0, ChildPhase.STARTING)
    for worker_id in ("a" * 64, "b", "ü" * 32):
        child.worker_id = worker_id
        assert board.worker_id == worker_id
    child.turned_at, child.jobs, child.phase_of_child = 12.5, 3, ChildPhase.DRAINED
    board.retire = True
    assert (board.turned_at, board.jobs, board.phase_of_child) == (12.5, 3, ChildPhase.DRAINED)
    assert child.retire and child.threads == THREADS
    with pytest.raises(ValueError, match="65 bytes"):
        child.worker_id = "c" * 65
    child.close()


def test_a_board_is_its_users_alone_and_is_never_taken_over(board: Board, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        Board.create(path, THREADS)
    assert path.exists()
    with pytest.raises(ValueError, match="at least one"):
        Board.create(path.with_name("none"), 0)
    with pytest.raises(IndexError, match="0 to 1"):
        board.read(THREADS)


def test_what_cannot_be_read_is_named(board: Board, path: Path) -> None:
    raw = path.read_bytes()
    other = path.with_name("other")
    for content, found in (
        (b"", "0 bytes that are no board"),
        (b"x" * len(raw), "that are no board"),
        (raw[:-1], f"{len(raw) - 1} bytes, where 2 threads have {len(raw)}"),
        (raw[:8] + (9).to_bytes(8, sys.byteorder) + raw[16:], "layout 9, where this code has layout 1"),
    ):
        other.write_bytes(content)
        with pytest.raises(BoardUnreadable, match=found) as refused:
            Board.open(other)
        assert str(other) in str(refused.value)
    with pytest.raises(FileNotFoundError):
        Board.open(path.with_name("missing"))


def test_boards_that_come_and_go_leave_no_descriptor_and_no_file(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(50):
        board = Board.create(tmp_path / f"{number}", 4)
        writer = board.writer(0)
        Board.open(board.path).close()
        board.remove()
        with pytest.raises(ValueError, match="released"):
            writer.body()
    assert len(os.listdir("/proc/self/fd")) == before
    assert not list(tmp_path.iterdir())
