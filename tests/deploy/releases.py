"""Two releases of one small application, as folders: what the second changed is all that a release may change."""

from __future__ import annotations

from pathlib import Path

ACTORS = '''
from sqlalchemy import text
from fleet import queue
from fleet.actor import current_message_id
from fleet.storage import database

work = queue("work")
RELEASE = {release!r}

def ran(job, **more):
    """A row for each body that ran to here; no key holds a second one off."""
    columns = {{"job": job, "release": RELEASE, **more}}
    into = ", ".join(columns), ", ".join(f":{{name}}" for name in columns)
    with database().begin() as connection:
        connection.execute(text(f"INSERT INTO ran ({{into[0]}}) VALUES ({{into[1]}})"), columns)

@work.actor
def steady(job): ran(job)

@work.actor
def tick(): ran(current_message_id())

{actors}
'''
CONFIG = """
from datetime import timedelta
from fleet import All, Budget, Entry, Lane, Retry
second = timedelta(seconds=1)
BUDGET = Budget(20 * second, 30 * second, because="one row in a table of the test's own")
RETRY = Retry(attempts=1, first=second, longest=second)
"""
LANES = """
LANES = [Lane("main", ["work"], waits_for="a table", processes=1, threads=4, budget=BUDGET, retry=RETRY)]
"""
ENTRY = 'Entry("{name}", expires=5 * second, catch_up=All(5), because="a slot of each release is counted", {when})'
FIRST = """
revision, down_revision, branch_labels, depends_on = "rows_0001", None, "rows", None
import sqlalchemy as sa
from alembic import op
def upgrade():
    op.create_table("ran", sa.Column("job", sa.String(), nullable=False), sa.Column("release", sa.String()))
"""
SECOND = """
revision, down_revision, branch_labels, depends_on = "rows_0002", "rows_0001", None, None
import sqlalchemy as sa
from alembic import op
def upgrade():
    op.add_column("ran", sa.Column("currency", sa.String(), nullable=False, server_default="EUR"))
"""
OLD_ACTORS = """
@work.actor
def charge(job): ran(job)

@work.actor
def going(job): ran(job)
"""
NEW_ACTORS = """
@work.actor
def charge(job, currency="EUR"): ran(job, currency=currency)

@work.actor
def added(job): ran(job)

@work.actor
def added_tick(): ran(current_message_id())
"""


def old(folder: Path) -> Path:
    """The release that runs."""
    schedule = ENTRY.format(name="tick", when="every=2 * second")
    return _written(folder, "old", OLD_ACTORS, schedule, {"0001.py": FIRST})


def new(folder: Path) -> Path:
    """The next: an actor and an entry more, one actor less, an argument more, another period, a column more."""
    schedule = ", ".join(
        [
            ENTRY.format(name="tick", when="every=second"),
            ENTRY.format(name="tick_of_the_new", when='actor="added_tick", every=second'),
        ]
    )
    return _written(folder, "new", NEW_ACTORS, schedule, {"0001.py": FIRST, "0002.py": SECOND})


def _written(folder: Path, release: str, actors: str, schedule: str, migrations: dict[str, str]) -> Path:
    files = {
        "actors/__init__.py": "",
        "actors/work.py": ACTORS.format(release=release, actors=actors),
        "config/__init__.py": "",
        "config/lanes.py": CONFIG + LANES,
        "config/schedule.py": f"{CONFIG}SCHEDULE = [{schedule}]\n",
        **{f"rows/migrations/versions/{name}": text for name, text in migrations.items()},
    }
    root = folder / release
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root
