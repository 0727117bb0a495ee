"""Which migrations leave the release before them able to work: judged by the SQL that they say, without a database.

A migration that only adds (a table, a column that may be left out, an index) does. One that drops, renames, retypes or
forbids does not, and belongs to the release after the one that needed it last. That an index or a constraint is dropped
is a finding too: the release before may say ON CONFLICT of it, and stops at its first INSERT. What is done to a table
that the same revision made, further up, is nobody's concern; with IF NOT EXISTS it may not have been made there. A
module may answer for itself: `rolls_because = "why the release before gets on with it"`, for what looks worse than it
is.

Not seen: what an UPDATE, a trigger or a function does; how long a statement locks. A migration that asks the database
what to do, or runs a block of code in it, cannot be told, and is a finding. So is what is named with a schema in one
statement and without in another: whether the two are one thing is for the search path to say.
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

_PART = r'(?:"[^"]+"|[\w$]+)'
_WHOLE = rf"({_PART}(?:\.{_PART})*)"
_NAME = rf"(?:IF EXISTS |IF NOT EXISTS |ONLY )*{_WHOLE}"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


_NOT_SAID = _pattern(r"""(?s)("[^"]*")|\bE'(?:[^'\\]|\\.)*'|'[^']*'|\$(\w*)\$.*?\$\2\$|--[^\n]*|/\*.*?\*/""")
"""Texts, bodies and comments: what stands in them is not said. Names in quotes are, and are its first group."""

_MAKES = _pattern(
    r"CREATE (?:(?:GLOBAL|LOCAL|TEMP|TEMPORARY|UNLOGGED|UNIQUE|RECURSIVE) )*"
    rf"(TABLE|VIEW|MATERIALIZED VIEW|INDEX|SEQUENCE|TYPE|DOMAIN|SCHEMA) (?:CONCURRENTLY )?(?!IF NOT EXISTS){_WHOLE}"
)
_DROPS = _pattern(r"DROP ((?:MATERIALIZED |FOREIGN |EVENT )?\w+) (?:CONCURRENTLY )?(.+)")
_ALTERS_TABLE = _pattern(rf"ALTER (?:FOREIGN )?TABLE {_NAME} ?\*? (.+)")
_RENAMES = _pattern(rf"ALTER ((?:MATERIALIZED |FOREIGN )?\w+) {_NAME}.* (?:RENAME|SET SCHEMA|DROP ATTRIBUTE)\b")
_DELETES = _pattern(rf"\b(?:TRUNCATE(?: TABLE)?|DELETE FROM) ({_NAME}(?:, ?{_NAME})*)")
_ONE_ALIKE = _pattern(rf"CREATE UNIQUE INDEX (?:CONCURRENTLY )?(?:IF NOT EXISTS )?(?:{_PART} )?ON {_NAME}")
_ACTIONS = [
    (_pattern(rf"DROP CONSTRAINT {_NAME}"), "drops constraint {1} of {0}, which an ON CONFLICT may need"),
    (_pattern(rf"DROP (?:COLUMN )?{_NAME}"), "drops column {0}.{1}"),
    (_pattern(rf"DETACH PARTITION {_NAME}"), "takes partition {1} from {0}"),
    (_pattern(rf"RENAME (?:COLUMN |CONSTRAINT )?{_NAME}"), "renames {0} or its {1}"),
    (_pattern(rf"SET SCHEMA {_NAME}"), "moves {0} to schema {1}"),
    (_pattern(rf"ALTER (?:COLUMN )?{_NAME} (?:SET DATA )?TYPE\b"), "retypes {0}.{1}"),
    (_pattern(rf"ALTER (?:COLUMN )?{_NAME} SET NOT NULL"), "forbids NULL in {0}.{1}"),
    (_pattern(rf"ALTER (?:COLUMN )?{_NAME} DROP (?:DEFAULT|IDENTITY)"), "takes {0}.{1} its default"),
    (_pattern(r"ADD (?:CONSTRAINT|CHECK|UNIQUE|PRIMARY|FOREIGN|EXCLUDE)\b"), "forbids rows of {0}"),
    (
        _pattern(rf"ADD (?:COLUMN )?{_NAME} (?!.*\b(?:DEFAULT|GENERATED|\w*SERIAL)\b).*\b(?:NOT NULL|PRIMARY KEY)\b"),
        "adds column {0}.{1}, which must be given",
    ),
    (
        _pattern(rf"ADD (?:COLUMN )?{_NAME} .*\b(?:UNIQUE|PRIMARY KEY|CHECK|REFERENCES)\b"),
        "adds column {0}.{1}, which forbids rows",
    ),
]
"""Of one action of an ALTER TABLE, the first that matches: what it does to table {0}, and to its {1}."""


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
    made: set[tuple[str, str]] = set()
    for statement in _statements(sql):
        for kind, name, says in _judged(statement):
            if (kind, name) not in made:
                yield says
            elif _DROPS.match(statement):
                made.discard((kind, name))  # what has the name from here on is not of this revision
        if (found := _MAKES.match(statement)) is not None:
            made.add((found[1].upper(), _plain(found[2])))


def _statements(sql: str) -> Iterator[str]:
    said = _NOT_SAID.sub(lambda found: found[1] or " '' ", sql)
    for statement in said.split(";"):
        yield " ".join(statement.split()).replace(" ,", ",")


def _judged(statement: str) -> Iterator[tuple[str, str, str]]:
    """What a statement may take from the release before: the kind and the name of the thing, and a finding."""
    if _pattern(r"DO\b").match(statement):
        yield "", "", "cannot be told from its SQL, since it runs a block of code"
    if _pattern(r"REVOKE\b").match(statement):
        yield "", "", "revokes rights"
    if _pattern(r"(?:WITH|DELETE|TRUNCATE)\b").match(statement):
        for deletes in _DELETES.finditer(statement):
            yield from (("TABLE", name, f"deletes rows of {name}") for name in _names(deletes[1]))
    while (flat := re.sub(r"\([^()]*\)", "", statement)) != statement:  # commas in brackets part no actions
        statement = flat
    if (found := _DROPS.match(statement)) is not None:
        kind = found[1].upper()
        needed = ", which an ON CONFLICT may need" if kind == "INDEX" else ""
        yield from ((kind, name, f"drops {kind.lower()} {name}{needed}") for name in _names(found[2]))
    elif (found := _ALTERS_TABLE.match(statement)) is not None:
        table = _plain(found[1])
        yield from (("TABLE", table, says) for says in _of_table(table, found[2]))
    elif (found := _RENAMES.match(statement)) is not None:
        kind, name = found[1].upper(), _plain(found[2])
        yield kind, name, f"renames or moves {kind.lower()} {name}, or what is in it"
    elif (found := _ONE_ALIKE.match(statement)) is not None:
        name = _plain(found[1])
        yield "TABLE", name, f"forbids rows of {name} that are alike"


def _of_table(table: str, actions: str) -> Iterator[str]:
    for action in actions.split(","):
        for pattern, says in _ACTIONS:
            if (found := pattern.match(action.strip())) is not None:
                yield says.format(table, *map(_plain, found.groups()))
                break


def _names(listed: str) -> Iterator[str]:
    for one in listed.split(","):
        if (found := re.match(_NAME, one.strip(), re.IGNORECASE)) is not None:
            yield _plain(found[1])


def _plain(name: str) -> str:
    """A name as PostgreSQL keeps it: in small letters, where no quotes are around it."""
    return ".".join(part[1:-1] if part[0] == '"' else part.lower() for part in re.findall(_PART, name))
