"""A lane's spare: a process that has everything imported and forks the processes which run suspects.

After one death there may be as many suspects as the lane has threads, each of which is to run alone; importing an
application takes a second of a core, and a fork a few hundredths. What the bodies of the lane's actors import when they
first run is imported here beforehand. It opens no connection and starts no thread, so that its forks are sound; one
that something gave a thread all the same forks nothing, and says so.

It speaks with its supervisor over a socket, in lines: `fork BOARD` is answered by `started PID`, or by `refused ERRNO`
where the machine has no process to give, and when a fork ended comes `ended PID CODE`. It dies with its supervisor, and
its forks with it.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import sys
import threading
from pathlib import Path

from fleet.app import App, load, settings
from fleet.clock import configure as configure_clock
from fleet.declarations import Lane
from fleet.logs import configure as configure_logs
from fleet.logs import get_logger
from fleet.workers import child
from fleet.workers.parent import die_with_parent
from fleet.workers.preload import preload

log = get_logger(__name__)


class _Spare:
    def __init__(self, app: App, lane: Lane, channel: socket.socket) -> None:
        self._app, self._lane, self._channel = app, lane, channel
        self._forks: set[int] = set()
        self._unread = b""

    def run(self) -> None:
        """Fork on demand until the supervisor hangs up."""
        woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        self._say("ready")
        while True:
            readable, _, _ = select.select([self._channel.fileno(), woken], [], [])
            if woken in readable:
                os.read(woken, 4096)
                self._collect()
            if self._channel.fileno() in readable and not self._obey():
                return

    def _obey(self) -> bool:
        read = self._channel.recv(65_536)
        *lines, self._unread = (self._unread + read).split(b"\n")
        for line in lines:
            self._fork(Path(line.decode().removeprefix("fork ")))
        return bool(read)

    def _fork(self, board: Path) -> None:
        threads = threading.active_count()
        if threads > 1:
            names = ", ".join(thread.name for thread in threading.enumerate())
            log.error("spare_has_threads", lane=self._lane.name, threads=names, instead="no suspect is run")
            os._exit(1)
        spare = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:  # to die of it would take those with it that run
            self._say(f"refused {error.errno}")
            return
        if pid == 0:
            self._be_a_child(board, spare)
        self._forks.add(pid)
        self._say(f"started {pid}")

    def _be_a_child(self, board: Path, spare: int) -> None:
        code = 1
        try:
            die_with_parent(signal.SIGKILL, spare)
            os.setsid()  # a signal to its own group is its own alone
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._channel.close()
            child.serve(self._app, self._lane, board, alone=True)
            code = 0
        except BaseException:
            log.exception("suspect_runner_broke", lane=self._lane.name)
        finally:
            sys.stdout.flush()
            os._exit(code)

    def _collect(self) -> None:
        for pid in list(self._forks):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._forks.remove(pid)
                self._say(f"ended {pid} {os.waitstatus_to_exitcode(status)}")

    def _say(self, line: str) -> None:
        self._channel.sendall(f"{line}\n".encode())


def main() -> None:
    """The entry point; configuration comes from the environment and the arguments."""
    parser = argparse.ArgumentParser(prog="python -m fleet.workers.spare")
    parser.add_argument("--app", type=Path, required=True)
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("lane")
    arguments = parser.parse_args()
    die_with_parent(signal.SIGKILL, arguments.parent)
    app = load(arguments.app)
    configured = settings()
    configure_logs(configured.log_format, configured.log_level)
    configure_clock(configured)
    lane = app.lane_here(arguments.lane)
    child.take_place(lane)
    preload(app, lane)
    for number in (signal.SIGTERM, signal.SIGINT):  # its supervisor ends it, once the forks have drained
        signal.signal(number, signal.SIG_IGN)
    _Spare(app, lane, socket.socket(fileno=arguments.channel)).run()


if __name__ == "__main__":
    main()
