"""Which migrations leave the release before them able to work: judged by the SQL that they say, without a database.

A migration that only adds (a table, a column that may be left out, an index) does. One that drops, renames, retypes or
forbids does not, and belongs to the release after the one that needed it last. What is done to a table that the same
revision made is nobody's concern. A module may answer for itself: `rolls_because = "why the release before gets on with
it"`, for what looks worse than it is.

Not seen: what an UPDATE, a trigger or a function does; how long a statement locks. A migration that asks the database
what to do cannot be told, and is a finding.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import Script

from fleet.reasons import reason_says_something
from fleet.storage.migrate import scripts

_NAME = r'(?:IF (?:NOT )?EXISTS )?(?:ONLY )?"?(\w+)"?'
_NARROWS = [
    (re.compile(rf"DROP TABLE {_NAME}"), "drops table {0}"),
    (re.compile(rf"DROP (?:MATERIALIZED )?VIEW {_NAME}"), "drops view {0}"),
    (re.compile(rf"ALTER TABLE {_NAME} (?:.*?, )?DROP (?:COLUMN )(?:IF EXISTS )?\"?(\w+)"), "drops column {0}.{1}"),
    (re.compile(rf"ALTER TABLE {_NAME} RENAME (?:COLUMN )?\"?(\w+)"), "renames {0} or its {1}"),
    (re.compile(rf"ALTER TABLE {_NAME} ALTER (?:COLUMN )?\"?(\w+)\"? (?:SET DATA )?TYPE"), "retypes {0}.{1}"),
    (re.compile(rf"ALTER TABLE {_NAME} ALTER (?:COLUMN )?\"?(\w+)\"? SET NOT NULL"), "forbids NULL in {0}.{1}"),
    (re.compile(rf"ALTER TABLE {_NAME} ALTER (?:COLUMN )?\"?(\w+)\"? DROP DEFAULT"), "takes {0}.{1} its default"),
    (
        re.compile(rf"ALTER TABLE {_NAME} ADD (?:COLUMN )?\"?(\w+)\"? (?!.*(?:DEFAULT|GENERATED|SERIAL)).*NOT NULL"),
        "adds column {0}.{1}, which must be given",
    ),
    (re.compile(rf"ALTER TABLE {_NAME} ADD (?:CONSTRAINT|CHECK|UNIQUE|FOREIGN|EXCLUDE)"), "forbids rows of {0}"),
    (re.compile(rf"CREATE UNIQUE INDEX (?:CONCURRENTLY )?\S+ ON {_NAME}"), "forbids rows of {0} that are alike"),
    (re.compile(rf"(?:TRUNCATE(?: TABLE)?|DELETE FROM) {_NAME}"), "deletes rows of {0}"),
]
_MAKES = re.compile(rf"CREATE (?:OR REPLACE )?(?:UNLOGGED )?(?:TABLE|VIEW|MATERIALIZED VIEW) {_NAME}", re.IGNORECASE)


def narrowing(root: Path, known: set[str]) -> Iterator[str]:
    """A finding for each thing that a revision, not one of the known, does and the release before may not bear."""
    for script in scripts(root).walk_revisions():
        if script.revision in known or reason_says_something(getattr(script.module, "rolls_because", "")):
            continue
        try:
            sql = _sql(script)
        except Exception as error:  # whatever a migration needs that is not there
            yield _finding(script, f"cannot be told from its SQL, since it asks the database ({error!r:.200})")
            continue
        for found in dict.fromkeys(_narrowed(sql)):
            yield _finding(script, found)


def _finding(script: Script, found: str) -> str:
    return (
        f"Migration {script.revision!r} ({Path(script.path).name}) {found}, while the release before still runs: only "
        f"add now, and do this in the release after; or say in it why that one gets on with it: rolls_because = '…'."
    )


def _sql(script: Script) -> str:
    """What its upgrade says to PostgreSQL."""
    said = io.StringIO()
    options: dict[str, Any] = {"as_sql": True, "output_buffer": said}
    said_by_alembic = logging.getLogger("alembic.runtime.migration")
    before, said_by_alembic.disabled = said_by_alembic.disabled, True  # that it makes SQL is no news here
    try:
        with Operations.context(MigrationContext.configure(dialect_name="postgresql", opts=options)):
            script.module.upgrade()
    finally:
        said_by_alembic.disabled = before
    return said.getvalue()


def _narrowed(sql: str) -> Iterator[str]:
    statements = [" ".join(re.sub(r"--[^\n]*", " ", part).split()) for part in sql.split(";")]
    made = {name for statement in statements for name in _MAKES.findall(statement)}
    for statement in statements:
        for pattern, says in _NARROWS:
            found = re.match(pattern.pattern, statement, re.IGNORECASE)
            if found and found[1] not in made:
                yield says.format(*found.groups())
