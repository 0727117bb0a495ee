"""Jobs that end well, are held, kill their process or hang in C; each run leaves a line when it begins and one when it
ends or is thrown out, in a journal that the code under test does not know.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from dramatiq import Message

from config.lanes import HUNG
from fleet import queue
from fleet.actor import current_message_id
from fleet.errors import DeadlineExceeded

RELEASE = "1"
STEP = 0.1
JOURNAL, ALLOCATED = "journal", 512 << 20

jobs = queue("jobs")


def note(folder: str, event: str, name: str, id: str, run: str) -> None:
    """One line, appended whole: event, name, pid, message id, monotonic time, run, alone or crew, release."""
    place = "alone" if Path(sys.argv[0]).stem == "spare" else "crew"
    line = f"{event} {name} {os.getpid()} {id} {time.monotonic()} {run} {place} {RELEASE}\n"
    handle = os.open(Path(folder) / JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, line.encode())
    os.close(handle)


@contextmanager
def recorded(folder: str, name: str) -> Iterator[None]:
    id, run = current_message_id(), uuid.uuid4().hex
    note(folder, "begin", name, id, run)
    try:
        yield
    except BaseException as error:
        note(folder, f"left:{type(error).__name__}", name, id, run)
        raise
    note(folder, "end", name, id, run)


def wait(folder: str, gate: str, seconds: float) -> None:
    """Until the folder has a file of this name, or one of it and this process's id, or for so many seconds."""
    ends = time.monotonic() + seconds
    gates = [Path(folder) / gate, Path(folder) / f"{gate}-{os.getpid()}"] if gate else []
    while (left := ends - time.monotonic()) > 0 and not any(path.exists() for path in gates):
        time.sleep(min(left, STEP))


def first_run(folder: str) -> bool:
    """Whether this message asks for the first time."""
    try:
        os.close(os.open(Path(folder) / f"ran-{current_message_id()}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


@jobs.actor
def work(folder: str, name: str, seconds: float, gate: str = "") -> None:
    """Run so long, or until the gate opens."""
    with recorded(folder, name):
        wait(folder, gate, seconds)


@jobs.actor
def stubborn(folder: str, name: str, seconds: int, with_the_gil: bool = False) -> None:
    """Stay in C for so long in the first run, where nothing can be raised; end at once in the second."""
    with recorded(folder, name):
        if first_run(folder):
            (ctypes.PyDLL(None).sleep if with_the_gil else time.sleep)(seconds)


@jobs.actor
def patient(folder: str, name: str, gate: str, seconds: float) -> None:
    """Wait for the gate in the first run; take so long in each later one."""
    with recorded(folder, name):
        if first_run(folder):
            wait(folder, gate, 60)
        else:
            wait(folder, "", seconds)


@jobs.actor
def fail_once(folder: str, name: str, gate: str) -> None:
    """Wait for the gate and fail in the first run; end well in the second."""
    with recorded(folder, name):
        first = first_run(folder)
        wait(folder, gate, 60)
        if first:
            raise RuntimeError("what a process says that was taken for dead")


@jobs.actor
def poison(folder: str, name: str, kind: str, gate: str) -> None:
    """Kill this process, once the gate is open."""
    with recorded(folder, name):
        wait(folder, gate, 60)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if kind == "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "segfault":
            ctypes.string_at(0)
        elif kind == "exit":
            os._exit(3)
        elif kind == "exit0":
            os._exit(0)
        elif kind == "memory":
            kept = b"x" * ALLOCATED  # written, so that the pages are there
            time.sleep(20)
            del kept
        elif kind == "lane":
            _kill_the_lane()
        elif kind == "parent":
            _kill_the_parent()


def _kill_the_lane() -> None:
    """The supervisor and whatever it has started: as when a container dies whole."""
    time.sleep(0.5)  # while others run beside it
    supervisor = next(one for one in psutil.Process().parents() if "work" in one.cmdline())
    below = [one for one in supervisor.children(recursive=True) if one.pid != os.getpid()]
    for one in [supervisor, *below, psutil.Process()]:
        with suppress(psutil.NoSuchProcess):
            one.kill()


def _kill_the_parent() -> None:
    """Whoever started this process, and the process."""
    time.sleep(0.5)
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def note_loss(message: Message[Any], reason: str) -> None:
    """What stands for writing a row's last state: says whether a process that ran this message still lives."""
    folder, name = message.args[0], message.args[1]
    lines = [line.split() for line in (Path(folder) / JOURNAL).read_text().splitlines()]
    ran = {int(words[2]) for words in lines if words[0] == "begin" and words[3] == message.message_id}
    alive = any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in ran)
    where = "beside" if alive else "after"
    note(folder, f"lost:{reason.replace(' ', '-')}:{where}", name, message.message_id, uuid.uuid4().hex)


@jobs.actor(budget=HUNG, on_lost=note_loss)
def hang(folder: str, name: str, kind: str, seconds: float) -> None:
    """Sit in C for a minute, or (`late`) for so long, where a raise from outside is not seen."""
    with recorded(folder, name), suppress(DeadlineExceeded):
        if kind == "late":
            time.sleep(seconds)
        elif kind == "sleep":
            time.sleep(60)
        elif kind == "socket":
            here, there = socket.socketpair()
            here.settimeout(60)
            here.recv(1)
            there.close()
        elif kind == "gil":
            ctypes.PyDLL(None).sleep(60)
