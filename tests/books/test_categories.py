"""Categories are read once a process and again after a change was committed anywhere; what is not heard is not kept."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import event, make_url, text
from sqlalchemy.orm import Session
from structlog.testing import capture_logs

from books import categories
from fleet.storage import database, reference, session
from tests.conftest import Environment
from tests.environment import child_path
from tests.waiting import wait_until

ADD = "INSERT INTO categories (id, name, keywords) VALUES ((SELECT max(id) + 1 FROM categories), %s, '{}')"
OTHER_PROCESS = """
import sys
from books import categories
from sqlalchemy import event
from fleet.storage import database

reads = []
event.listen(database(), "before_cursor_execute", lambda *call: reads.append(call[2]))
for line in sys.stdin:
    names = list(categories.current().ids)
    print(line.strip() in names, len([one for one in reads if "FROM categories" in one]), flush=True)
"""


class Reads(list[str]):
    """The statements by which this process read categories."""

    def none_for(self, uses: int) -> bool:
        """Whether so many uses read nothing."""
        self.clear()
        for _ in range(uses):
            categories.current()
        return not self


@pytest.fixture
def reads(migrated: object) -> Iterator[Reads]:
    seen = Reads()

    def saw(_: Any, __: Any, statement: str, *___: Any) -> None:
        if "FROM categories" in statement:
            seen.append(statement)

    event.listen(database(), "before_cursor_execute", saw)
    yield seen
    with session() as s:
        s.execute(text("DELETE FROM categories WHERE name LIKE 'new %'"))


@pytest.fixture
def elsewhere(migrated: Environment) -> Iterator[psycopg.Connection[Any]]:
    """Somebody else's connection, with whatever tool."""
    url = make_url(migrated.database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def other_process(migrated: object) -> Iterator[subprocess.Popen[str]]:
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    command = [sys.executable, "-c", OTHER_PROCESS]
    environment = {**os.environ, "PYTHONPATH": child_path(root)}  # type: ignore[arg-type]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=root, env=environment) as child:
        yield child
        child.kill()


def asks(child: subprocess.Popen[str], name: str) -> tuple[bool, int]:
    """Whether the other process knows a category, and how often it has read them."""
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(f"{name}\n")
    child.stdin.flush()
    knows, times = child.stdout.readline().split()
    return knows == "True", int(times)


def kept_by(child: subprocess.Popen[str]) -> bool:
    _, before = asks(child, "Other")
    return asks(child, "Other")[1] == before


def test_they_are_read_once_and_then_kept(reads: Reads) -> None:
    first = categories.current()
    wait_until(lambda: reads.none_for(3))
    assert categories.current() == first
    assert first.find("TANKSTELLE Nr. 7") == first.ids["Fuel and vehicles"]
    assert first.find("Zzz") is None


def test_a_change_in_one_process_is_seen_in_another_which_reads_them_once_more(
    reads: Reads, other_process: subprocess.Popen[str]
) -> None:
    wait_until(lambda: kept_by(other_process))
    _, before = asks(other_process, "Other")
    with session() as s:
        s.execute(text(ADD.replace("%s", "'new here'")))
        s.flush()
        assert asks(other_process, "new here") == (False, before)
    wait_until(lambda: asks(other_process, "new here")[0])
    assert asks(other_process, "new here") == (True, before + 1)
    wait_until(lambda: reads.none_for(3))
    assert "new here" in categories.current().ids


def test_a_change_that_was_rolled_back_or_is_of_another_table_has_nobody_read_again(
    reads: Reads, elsewhere: psycopg.Connection[Any]
) -> None:
    wait_until(lambda: reads.none_for(3))
    with pytest.raises(RuntimeError, match="thought better"), elsewhere.transaction():
        elsewhere.execute(ADD, ["new no more"])
        raise RuntimeError("thought better")
    heard = reference._listener()._changes
    elsewhere.execute("SELECT pg_notify('fleet_reference', 'another_table')")
    wait_until(lambda: reference._listener()._changes > heard)
    threads = [threading.Thread(target=categories.current) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reads == []
    elsewhere.execute("UPDATE categories SET name = name")
    wait_until(lambda: not reads.none_for(1))


def test_nothing_is_kept_while_nobody_listens_and_all_is_again_once_somebody_does(
    reads: Reads, elsewhere: psycopg.Connection[Any]
) -> None:
    wait_until(lambda: reads.none_for(3))
    name = elsewhere.info.dbname
    with psycopg.connect(elsewhere.info.dsn, dbname="postgres", autocommit=True) as admin, capture_logs() as lines:
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'fleet reference'"
        )
        wait_until(lambda: not reads.none_for(1), 5)  # at once, not when the trust has run out
        elsewhere.execute(ADD, ["new unheard"])
        assert "new unheard" in categories.current().ids
        assert not reads.none_for(1) and len(reads) == 1
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        wait_until(lambda: reads.none_for(3))
    assert [line["event"] for line in lines if "reference" in line["event"]] == [
        "reference_not_heard",
        "reference_heard_again",
    ]


def test_what_was_read_before_a_change_but_came_after_it_is_not_kept(
    reads: Reads, elsewhere: psycopg.Connection[Any]
) -> None:
    wait_until(lambda: reads.none_for(3))
    changes = ["new while it was read"]

    def slowly(s: Session) -> list[str]:
        found = list(categories.read(s).ids)
        if changes:
            elsewhere.execute(ADD, [changes.pop()])
            wait_until(lambda: not reads.none_for(1))  # the change was heard
        return found

    slow = reference.Reference("categories", slowly)
    assert "new while it was read" not in slow.get()
    assert "new while it was read" in slow.get()
    assert slow.get() is slow.get()


def test_what_was_last_heard_too_long_ago_is_not_trusted(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_until(lambda: reads.none_for(3))
    monkeypatch.setattr(reference, "TRUSTED_FOR", timedelta(0))
    assert not reads.none_for(1)


def test_a_table_whose_changes_nobody_tells_is_not_kept(reads: Reads, elsewhere: psycopg.Connection[Any]) -> None:
    reference.forget()
    elsewhere.execute("ALTER TABLE categories DISABLE TRIGGER categories_tell")
    try:
        categories.current()
        listening = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fleet reference' AND query = %s"
        wait_until(lambda: elsewhere.execute(listening, ["SELECT 1"]).fetchall() != [(0,)])
        for _ in range(3):
            assert not reads.none_for(1)
    finally:
        elsewhere.execute("ALTER TABLE categories ENABLE TRIGGER categories_tell")
        reference.forget()


def test_a_forked_process_trusts_nothing_of_its_parents_and_listens_itself(reads: Reads) -> None:
    wait_until(lambda: reads.none_for(3))
    database().dispose()  # so that the two share no connection
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            began_anew = not reads.none_for(1)
            wait_until(lambda: reads.none_for(3))
            code = 0 if began_anew else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert reads.none_for(3)
