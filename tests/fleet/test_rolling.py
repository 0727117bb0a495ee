"""`fleet check --against MANIFEST`: what must not run beside the release before it, and what to do instead."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dramatiq import Message

from fleet.broker import FleetBroker, keys
from fleet.broker.counting import messages_of
from fleet.catalogue import parameters_of
from fleet.manifest import Declared, Manifest, ManifestUnreadable, Parameter, read
from fleet.rolling import findings
from fleet.storage.migrate import revisions
from tests.fleet.conftest import Fleet, WriteApp

LANES = {"main": ("greetings",)}
NOWHERE = Path("/nonexistent")
_, ENGINES = revisions(NOWHERE)


def declared(function: Callable[..., Any], queue: str = "greetings") -> Declared:
    return Declared(queue, tuple(Parameter(**one) for one in parameters_of(function)))


def release(function: Callable[..., Any] = lambda name: None, **changes: Any) -> Manifest:
    """A release with one actor, `greet`."""
    return replace(Manifest({"greet": declared(function)}, LANES, {}, (), ENGINES), **changes)


def found(running: Manifest, new: Manifest, **options: Any) -> list[str]:
    return [*findings(running, new, NOWHERE, **options)]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (lambda name: None, lambda name: None),
        (lambda name: None, lambda name, tone="kind": None),
        (lambda name: None, lambda name, *, tone="kind": None),
        (lambda name: None, lambda name, *more: None),
        (lambda name: None, lambda *names, **more: None),
        (lambda name, /: None, lambda *names: None),
        (lambda name, /: None, lambda name: None),
        (lambda name: None, lambda name=None, /, **more: None),
        (lambda name, *more: None, lambda name, *more, tone="kind": None),
        (lambda name, tone="kind": None, lambda name, tone="harsh": None),
        (lambda *, name: None, lambda name: None),
        (lambda *, name: None, lambda **names: None),
    ],
)
def test_what_takes_every_message_of_the_running_release_may_be_rolled_out(
    before: Callable[..., Any], now: Callable[..., Any]
) -> None:
    assert found(release(before), release(now)) == [], (inspect.signature(before), inspect.signature(now))


@pytest.mark.parametrize(
    ("before", "now", "finding"),
    [
        (lambda name: None, lambda: None, "parameter 'name' is gone"),
        (lambda name, tone: None, lambda name: None, "parameter 'tone' is gone"),
        (lambda name: None, lambda name, tone: None, "parameter 'tone' must be given"),
        (lambda name: None, lambda tone, name: None, "parameter 'name' was number 1, where 'tone' is now"),
        (lambda name: None, lambda *, name: None, "parameter 'name' was number 1, where taken by name alone is now"),
        (lambda a, b: None, lambda b, a, *rest: None, "parameter 'a' was number 1, where 'b' is now"),
        (lambda a, *rest: None, lambda a, b=0, *rest: None, "parameter 'b' is where *rest took"),
        (lambda a: None, lambda a, /: None, "parameter 'a' is taken by its place alone"),
        (lambda a: None, lambda a, /, **more: None, "parameter 'a' is taken by its place alone"),
        (lambda *, a: None, lambda a, /, **more: None, "parameter 'a' is gone, which messages name"),
        (lambda a, b: None, lambda *rest: None, "parameter 'b' is taken by its place alone"),
        (lambda a: None, lambda *rest, a=0: None, "parameter 'a' was number 1, where taken by name alone is now"),
        (lambda **more: None, lambda more, **rest: None, "parameter 'more' must be given"),
        (lambda name="x": None, lambda name: None, "parameter 'name' must be given"),
        (lambda *, name: None, lambda: None, "parameter 'name' is gone, which messages name"),
        (lambda *names: None, lambda name="all": None, "it takes no *names any more"),
        (lambda **names: None, lambda name="all": None, "it takes no **names any more"),
    ],
)
def test_what_would_not_take_a_message_of_the_running_release_is_found(
    before: Callable[..., Any], now: Callable[..., Any], finding: str
) -> None:
    assert any(finding in line for line in found(release(before), release(now))), found(release(before), release(now))


def test_an_actor_may_be_added_and_move_to_a_queue_that_a_lane_serves() -> None:
    new = release(
        actors={"greet": declared(lambda name: None, "letters"), "thank": declared(lambda name: None)},
        lanes={"main": ("greetings",), "post": ("letters",)},
    )
    assert found(release(), new) == []


def test_an_actor_that_is_gone_is_found_until_somebody_looked_that_none_of_its_messages_is_left() -> None:
    new = release(actors={"other": declared(lambda: None)})
    (finding,) = found(release(), new)
    assert "Actor 'greet' (queue 'greetings') is gone" in finding and "--look" in finding
    (finding,) = found(release(), new, waiting=lambda queue, actor: 3)
    assert "3 messages of it are in queue 'greetings'" in finding
    assert found(release(), new, waiting=lambda queue, actor: 0) == []


def test_a_queue_that_no_lane_serves_any_more_is_found_and_one_that_moved_to_another_lane_is_not() -> None:
    (finding,) = found(release(), release(lanes={"main": ("letters",)}))
    assert finding.startswith("Queue 'greetings' of lane 'main' is served by no lane any more")
    assert found(release(), release(lanes={"other": ("greetings",)})) == []


@pytest.mark.parametrize(("messages", "findings"), [(0, 0), (3, 1)])
def test_a_queue_that_is_empty_may_lose_its_lane(messages: int, findings: int) -> None:
    new = release(actors={"greet": declared(lambda name: None, "letters")}, lanes={"main": ("letters",)})
    assert len(found(release(), new, waiting=lambda queue, actor: messages)) == findings


def test_an_entry_whose_actor_cannot_be_called_without_arguments_is_found() -> None:
    (finding,) = found(release(), release(entries={"good_morning": "greet"}))
    assert finding.startswith("Entry 'good_morning' sends 'greet' without arguments, and it needs name")
    assert found(release(lambda: None), release(lambda name="all": None, entries={"good_morning": "greet"})) == []


def test_a_release_that_does_not_know_where_the_database_stands_is_found() -> None:
    (finding,) = found(release(heads=("b",), revisions=("a", "b")), release(heads=("a",), revisions=("a",)))
    assert "stands at b, which this one does not know" in finding


REVISION = """
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = {name!r}, {before!r}, {label!r}, None
{more}
def upgrade():
    {body}
"""


def migrations(root: Path, **bodies: str) -> None:
    folder, before = root / "rows/migrations/versions", None
    folder.mkdir(parents=True)
    for name, body in bodies.items():
        more, _, body = body.rpartition("|")
        text = REVISION.format(name=name, before=before, label=None if before else "rows", more=more, body=body)
        (folder / f"{name}.py").write_text(text)
        before = name


NARROWS = {
    "op.drop_table('people')": "drops table people",
    "op.execute('DROP VIEW IF EXISTS list')": "drops view list",
    "op.drop_column('people', 'name')": "drops column people.name",
    "op.alter_column('people', 'name', new_column_name='called')": "renames people or its name",
    "op.rename_table('people', 'persons')": "renames people",
    "op.alter_column('people', 'age', type_=sa.BigInteger())": "retypes people.age",
    "op.alter_column('people', 'age', nullable=False)": "forbids NULL in people.age",
    "op.alter_column('people', 'age', server_default=None)": "takes people.age its default",
    "op.add_column('people', sa.Column('mail', sa.String(), nullable=False))": "adds column people.mail, which must",
    "op.create_check_constraint('old', 'people', 'age > 17')": "forbids rows of people",
    "op.create_unique_constraint('one', 'people', ['name'])": "forbids rows of people",
    "op.create_index('one', 'people', ['name'], unique=True)": "forbids rows of people that are alike",
    "op.execute('delete from people where age < 18')": "deletes rows of people",
    "op.execute('WITH old AS (DELETE FROM people RETURNING *) SELECT * FROM old')": "deletes rows of people",
    "op.execute('CREATE TABLE pets (n int); TRUNCATE pets, people')": "deletes rows of people",
    "op.drop_constraint('uq', 'people')": "drops constraint uq of people, which an ON CONFLICT may need",
    "op.drop_index('uq', 'people')": "drops index uq, which an ON CONFLICT may need",
    "op.execute('DROP INDEX CONCURRENTLY IF EXISTS uq')": "drops index uq, which an ON CONFLICT may need",
    "op.drop_column('people', 'name', schema='public')": "drops column public.people.name",
    "op.execute('ALTER TABLE public.people DROP COLUMN name')": "drops column public.people.name",
    'op.execute(\'ALTER TABLE "old people" DROP "first name"\')': "drops column old people.first name",
    "op.execute('ALTER TABLE people DROP name')": "drops column people.name",
    "op.execute('ALTER TABLE people ADD a numeric(4, 2), DROP IF EXISTS name')": "drops column people.name",
    "op.execute('ALTER TABLE people SET SCHEMA attic')": "moves people to schema attic",
    "op.execute('DROP TYPE mood')": "drops type mood",
    "op.execute('DROP SCHEMA attic CASCADE')": "drops schema attic",
    "op.execute('DROP SEQUENCE numbers')": "drops sequence numbers",
    "op.execute('DROP FUNCTION f(int, text)')": "drops function f",
    "op.execute('DROP VIEW public.list')": "drops view public.list",
    "op.execute('DROP MATERIALIZED VIEW list')": "drops materialized view list",
    "op.execute('DROP VIEW list'); op.execute('CREATE VIEW list AS SELECT name FROM people')": "drops view list",
    "op.execute(\"ALTER TYPE mood RENAME VALUE 'sad' TO 'low'\")": "renames or moves type mood",
    "op.execute('ALTER TABLE people ADD COLUMN a int UNIQUE')": "adds column people.a, which forbids rows",
    "op.execute('ALTER TABLE people ADD COLUMN IF NOT EXISTS a int NOT NULL')": "adds column people.a, which must be",
    "op.execute('CREATE TABLE IF NOT EXISTS people (n int); ALTER TABLE people DROP name')": "drops column people.name",
    "op.execute('CREATE TABLE attic.people (n int); ALTER TABLE people DROP name')": "drops column people.name",
    "op.execute('ALTER TABLE people DROP name; CREATE TABLE people (n int)')": "drops column people.name",
    "op.execute('CREATE TEMP TABLE people (); DROP TABLE people; ALTER TABLE people DROP n')": "drops column people.n",
    "op.execute('CREATE UNIQUE INDEX IF NOT EXISTS one ON people (name)')": "forbids rows of people that are alike",
    "op.execute('DO $$ BEGIN DROP TABLE people; END $$')": "cannot be told from its SQL, since it runs a block",
    "op.execute('REVOKE INSERT ON people FROM books')": "revokes rights",
    "op.get_bind().execute(sa.text('SELECT 1')).scalar()": "cannot be told from its SQL",
}
WIDENS = [
    "op.add_column('people', sa.Column('mail', sa.String()))",
    "op.add_column('people', sa.Column('seen', sa.BigInteger(), nullable=False, server_default='0'))",
    "op.create_index('by_name', 'people', ['name'])",
    "op.create_table('pets', sa.Column('name', sa.String(), nullable=False), sa.UniqueConstraint('name'))",
    "op.create_table('pets', sa.Column('n', sa.String())); op.create_index('one', 'pets', ['n'], unique=True)",
    "op.alter_column('people', 'age', nullable=True)",
    "op.execute('CREATE OR REPLACE VIEW list AS SELECT name, age FROM people')",
    "op.execute('CREATE TABLE public.pets (n int UNIQUE); ALTER TABLE public.pets DROP n, ADD m int NOT NULL')",
    "op.create_table('pets', sa.Column('n', sa.String())); op.create_index('i', 'pets', ['n']); op.drop_index('i')",
    "op.execute('CREATE TYPE mood AS ENUM (); DROP TYPE mood')",
    "op.execute(\"COMMENT ON TABLE people IS 'once we; DROP TABLE people'; -- DROP TABLE people\")",
    "op.execute(\"ALTER TABLE people ADD COLUMN a text DEFAULT 'NOT NULL, DROP name UNIQUE', ADD b numeric(4, 2)\")",
    "op.execute(\"ALTER TYPE mood ADD VALUE 'glad'\")",
    "op.execute('CREATE FUNCTION f() RETURNS void LANGUAGE sql AS $a$ SELECT 1; DELETE FROM people; $a$')",
    "rolls_because = 'only a check stood there, no key'|op.drop_constraint('old', 'people')",
    "rolls_because = 'the release before never wrote such a row'|op.create_check_constraint('o', 'people', 'age > 1')",
]


@pytest.mark.parametrize("body", NARROWS)
def test_a_migration_that_takes_something_from_the_running_release_is_found(tmp_path: Path, body: str) -> None:
    migrations(tmp_path, first="op.create_table('people', sa.Column('name', sa.String()))", second=body)
    running, new = release(revisions=("first",)), release(revisions=("first", "second"))
    lines = [line for line in findings(running, new, tmp_path) if "'second'" in line]
    assert len(lines) == 1 and f"Migration 'second' (second.py) {NARROWS[body]}" in lines[0]


@pytest.mark.parametrize("body", WIDENS)
def test_a_migration_that_only_adds_or_says_why_it_is_borne_is_not(tmp_path: Path, body: str) -> None:
    migrations(tmp_path, first="op.create_table('people', sa.Column('name', sa.String()))", second=body)
    running, new = release(revisions=("first",)), release(revisions=("first", "second"))
    assert [line for line in findings(running, new, tmp_path) if "'second'" in line] == []


def test_a_manifest_that_was_written_is_read_as_it_was_and_what_is_none_is_said(
    fleet: Fleet, write_app: WriteApp, tmp_path: Path
) -> None:
    path = tmp_path / "running.json"
    path.write_text(fleet(write_app(), "manifest").stdout)
    assert read(path).actors == {"greet": declared(lambda: None)}
    assert read(path).text() == path.read_text()
    for text in ("", "[]", "{}", json.dumps({"format": 2})):
        path.write_text(text)
        with pytest.raises(ManifestUnreadable, match=r"running\.json"):
            read(path)


def test_check_against_the_running_release_ends_with_code_2_and_a_line_a_finding(
    fleet: Fleet, write_app: WriteApp, tmp_path: Path, redis_url: str, namespace: str
) -> None:
    running = tmp_path / "running.json"
    actors = "@greetings.actor\ndef wave(): ...\n@greetings.actor\ndef thank(name): ...\n"
    running.write_text(fleet(write_app(actors=actors), "manifest").stdout)
    root = write_app(actors="@greetings.actor\ndef thank(): ...\n")
    done = fleet(root, "check", "--against", str(running))
    assert done.returncode == 2
    gone, thank = done.stderr.removeprefix("fleet: ").splitlines()[::-1]
    assert "Actor 'wave'" in gone and "Actor 'thank': parameter 'name' is gone" in thank
    where = {"FLEET_REDIS_URL": redis_url, "FLEET_NAMESPACE": namespace}
    done = fleet(root, "check", "--against", str(running), "--look", **where)
    assert "wave" not in done.stderr and "Actor 'thank'" in done.stderr


def test_messages_are_counted_wherever_in_their_queue_they_are(redis_url: str, namespace: str) -> None:
    broker = FleetBroker(url=redis_url, namespace=namespace, middleware=[])
    broker.declare_queue("greetings")
    for delay in (None, None, 60_000):
        broker.enqueue(Message("greetings", "wave", (), {}, {}), delay=delay)
    broker.enqueue(Message("greetings", "greet", (), {}, {}))
    broker.client.hset(keys.bodies(namespace, "greetings"), mapping={"no JSON": "{", "too deep": "[" * 20_000})
    assert messages_of(broker, "greetings", "wave") == 3
    assert messages_of(broker, "greetings", "nobody") == 0
    assert messages_of(broker, "greetings") == 6
    broker.client.close()
