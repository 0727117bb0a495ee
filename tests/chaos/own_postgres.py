"""A PostgreSQL of a test's own that can be killed, the first process and all, and started again on its folder.

Not guaranteed: that it ends with a test process that is killed itself.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from sqlalchemy import create_engine, text

from fleet import embedded
from fleet.storage.engine import psycopg_url
from fleet.storage.migrate import migrate
from tests.conftest import ROOT
from tests.waiting import wait_until

READY = "database system is ready to accept connections"


class OwnPostgres:
    """Migrated, and with every connection in its log."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self._log = folder, folder / "log"
        self._command = shlex.split((folder / "postmaster.opts").read_text())
        self._started: subprocess.Popen[bytes] | None = None
        self.url = psycopg_url(url).render_as_string(hide_password=False)
        self.engine = create_engine(self.url, pool_pre_ping=True)
        migrate(self.engine, ROOT)
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("ALTER SYSTEM SET log_connections = on"))
            connection.execute(text("SELECT pg_reload_conf()"))

    def kill(self, how: signal.Signals) -> None:
        """The process that all others come from, and wait until they are gone with it.

        Raises `AssertionError` where some lasted for 20 s. They are killed then: beside them none can be started.
        """
        first = psutil.Process(int((self._folder / "postmaster.pid").read_text().split()[0]))
        all_of_it = [first, *first.children(recursive=True)]
        first.send_signal(how)
        _, alive = psutil.wait_procs(all_of_it, 20)
        for process in alive:
            process.kill()
        psutil.wait_procs(alive, 20)
        assert not alive

    def start(self) -> None:
        """As its folder's owner; returns when it answers."""
        ready, owner = self._log.read_text().count(READY), self._folder.stat()
        theirs = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": ()} if os.geteuid() == 0 else {}
        with self._log.open("ab") as log:
            self._started = subprocess.Popen(self._command, cwd=self._folder, stdout=log, stderr=log, **theirs)
        wait_until(lambda: self._log.read_text().count(READY) > ready, 30)

    def stop(self) -> None:
        """The one that was started last, which the host of the embedded servers does not know."""
        self.engine.dispose()
        if self._started is not None:
            self._started.send_signal(signal.SIGINT)
            self._started.wait(20)

    def logged(self, words: str) -> int:
        """How many lines of its log have these words."""
        return self._log.read_text(errors="replace").count(words)


@contextmanager
def own_postgres() -> Iterator[OwnPostgres]:
    """In a folder whose way is open to its owner; that of pytest's `tmp_path` closes when another pytest begins."""
    with (
        tempfile.TemporaryDirectory(prefix="fleet-tests-") as folder,
        embedded.servers(Path(folder), embedded.Wanted(valkey=False)) as urls,
    ):
        own = OwnPostgres(Path(folder) / "postgres", urls.database_url)
        try:
            yield own
        finally:
            own.stop()
