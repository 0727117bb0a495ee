"""An application whose jobs ask PostgreSQL through Django, or through psycopg itself: what is gone, and what breaks.

The `actors/__init__.py` that docs/sending.md shows is the one that runs here.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from fleet import queue, unspent
from fleet.gone import postgresql_gone, server_gone
from tests.architecture.code_blocks import blocks
from tests.conftest import ROOT, Environment
from tests.environment import child_path
from tests.fleet.conftest import HEAD
from tests.middleware.slot_rows import refused_port
from tests.middleware.test_retries import Tries
from tests.waiting import wait_until

pytest.importorskip("django", reason="of the group dev")


IDLE = "nothing, until the server has ended the session"


def ask(connection: Any, execute: Callable[[str], object], statements: tuple[str, ...]) -> None:
    """Execute the statements, of a connection of the driver's."""
    for statement in statements:
        if statement == IDLE:  # there is something to read that nobody asked for
            wait_until(lambda: select.select([connection.pgconn.socket], [], [], 0)[0], 10)
        else:
            execute(statement)


def through_psycopg(url: str, *statements: str) -> Exception:
    """What psycopg raises of the statements."""
    try:
        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            ask(connection, connection.execute, statements)  # type: ignore[arg-type]
    except psycopg.Error as error:
        return error
    raise AssertionError(f"nothing was raised by {statements}")


def through_another(url: str, *statements: str) -> Exception:
    """What another library makes of that."""
    wrapped = LookupError("no such customer")
    wrapped.__cause__ = through_psycopg(url, *statements)
    return wrapped


def through_django(url: str, *statements: str) -> Exception:
    """What Django raises of the statements."""
    import django
    from django.conf import settings
    from django.db import utils

    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    database = utils.ConnectionHandler({"default": database_of(url)})["default"]
    try:
        with database.cursor() as cursor:
            ask(database.connection, cursor.execute, statements)
    except utils.Error as error:
        return error
    finally:
        database.close()
    raise AssertionError(f"nothing was raised by {statements}")


def database_of(url: str) -> dict[str, Any]:
    """An entry of Django's DATABASES."""
    given = make_url(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": given.database,
        "USER": given.username or "",
        "PASSWORD": given.password or "",
        "HOST": given.query.get("host", given.host),
        "PORT": given.port or "",
        "CONN_MAX_AGE": None,
    }


ASKED = pytest.mark.parametrize("raised", [through_psycopg, through_another, through_django])
Raised = Callable[..., Exception]


@ASKED
def test_a_server_that_refuses_or_ends_a_connection_is_gone(raised: Raised, migrated_url: str) -> None:
    with refused_port() as url:
        refused = raised(url, "SELECT 1")
    ended = raised(migrated_url, "SELECT pg_terminate_backend(pg_backend_pid())", "SELECT 1")
    for error in (refused, ended):
        assert postgresql_gone(error) and server_gone(error), repr(error)


@ASKED
@pytest.mark.parametrize(
    "statements",
    [
        ["SELECT 1 / 0"],
        ["SELECT * FROM nothing"],
        ["SET statement_timeout = 20", "SELECT pg_sleep(5)"],
        ["SET idle_in_transaction_session_timeout = 20", "BEGIN", "SELECT 1", IDLE, "SELECT 1"],
        ["BEGIN", "SET TRANSACTION READ ONLY", "CREATE TABLE more (id int)"],
    ],
)
def test_what_a_server_that_is_there_answers_is_a_failure_like_any(
    raised: Raised, migrated_url: str, statements: list[str]
) -> None:
    error = raised(migrated_url, *statements)
    assert not postgresql_gone(error) and not server_gone(error), repr(error)


def test_a_pool_that_has_no_connection_to_lend_is_no_server_that_is_gone() -> None:
    class PoolTimeout(psycopg.OperationalError):
        """As psycopg_pool derives its own."""

    error = LookupError("no such customer")
    error.__cause__ = PoolTimeout("couldn't get a connection after 30.00 sec")
    assert not postgresql_gone(error) and server_gone(error), "the next row would not get one either"


@ASKED
def test_while_postgresql_refuses_a_job_of_another_library_has_all_its_attempts(
    house: Any, raised: Raised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unspent, "PAUSE", timedelta(milliseconds=20))
    with refused_port() as url:
        error = raised(url, "SELECT 1")
    tries = Tries(error)
    queue("work").actor(tries.job).send()
    house.work()
    wait_until(lambda: len(tries.at) >= 6)  # twice the lane's three attempts
    assert house.dead() == []


def test_a_process_that_has_psycopg_alone_judges_its_errors_without_sqlalchemy() -> None:
    with refused_port() as url:
        asks = (
            "import sys, psycopg\nfrom fleet import unspent\n"
            f"try:\n    psycopg.connect({url!r})\n"
            "except psycopg.Error as error:\n    assert unspent.awaits_postgresql({}, error)\n"
            "else:\n    raise AssertionError('a connection to nobody')\n"
            "assert 'sqlalchemy' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", asks], check=True, timeout=30)


BUDGET = "BUDGET = Budget(60 * SECOND, 120 * SECOND, because='no job of this test comes near it')"
OWN = "USE_TZ, INSTALLED_APPS = True, ['shop']"
ORDERS = """
from django.db import OperationalError, connection
from fleet import queue

orders = queue("orders")
ASKED = []


@orders.actor
def ask(ends: bool) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        ASKED.append(cursor.fetchone()[0])
        if ends:
            try:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            except OperationalError:
                pass
"""
RUNS = """
from datetime import timedelta
from pathlib import Path

from fleet.app import load, process_broker
from fleet.testing import Jobs

app = load(Path.cwd())
from actors.orders import ASKED, ask

ask.send_many([[True], [False]])
assert Jobs(app, process_broker()).run(threads=1, within=timedelta(seconds=20)) == 2
assert len(set(ASKED)) == 2, ASKED
"""


def write(root: Path, database_url: str, first: str) -> None:
    files = {
        "actors/__init__.py": first,
        "actors/orders.py": ORDERS,
        "config/__init__.py": "",
        "config/lanes.py": f"{HEAD}\n{BUDGET}\nLANES = [lane('orders', 'orders')]\n",
        "config/schedule.py": "SCHEDULE = []\n",
        "shop/__init__.py": "",
        "shop/settings.py": f"{OWN}\nDATABASES = {{'default': {database_of(database_url)}}}\n",
        # Where models import actors, for `on_commit`, Django is being set up as actors/__init__.py is imported.
        "shop/models.py": "from actors.orders import ask",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def shown() -> str:
    """The page's own `actors/__init__.py`."""
    (block,) = [one for one in blocks((ROOT / "docs/sending.md").read_text()) if one.file == "actors/__init__.py"]
    return block.text


def run(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([child_path(root), str(ROOT)])
    given = {**os.environ, "PYTHONPATH": path}
    return subprocess.run([sys.executable, *words], cwd=root, env=given, capture_output=True, text=True, timeout=120)


def test_with_the_guides_lines_a_connection_that_broke_in_one_job_is_not_the_next_ones(
    environment: Environment, tmp_path: Path
) -> None:
    write(tmp_path, environment.database_url, shown())
    checked = run(tmp_path, "-m", "fleet", "check")
    assert checked.returncode == 0, checked.stderr
    ran = run(tmp_path, "-c", RUNS)
    assert ran.returncode == 0, ran.stderr[-3000:]


@pytest.mark.parametrize("first", ["django.setup()", "from actors import orders; django.setup()"])
def test_with_the_guides_lines_a_web_process_sets_django_up_itself(
    environment: Environment, tmp_path: Path, first: str
) -> None:
    write(tmp_path, environment.database_url, shown())
    sends = "from shop.models import ask; ask.send(True)"
    web = f"import os, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'shop.settings'; {first}; {sends}"
    ran = run(tmp_path, "-c", web)
    assert ran.returncode == 0, ran.stderr[-3000:]
