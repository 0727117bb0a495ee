"""Real servers for every test: embedded ones, or those that FLEET_REDIS_URL and FLEET_DATABASE_URL name.

A test gets a Redis namespace and (a module) a PostgreSQL database of its own, so that nothing is flushed on a server
that is somebody's.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dramatiq
import pytest
import redis

# Hypothesis's plugin imports it after the last test where no test did, parsing its source, which CPython 3.11 cannot
# while a thread parses too (a traceback that is being printed): "AST constructor recursion depth mismatch".
from hypothesis import HealthCheck, Phase, settings
from sqlalchemy import create_engine, text

from fleet import app as application
from fleet import embedded
from fleet.clock import clock
from fleet.settings import Settings
from fleet.storage import engine as storage
from fleet.storage.migrate import migrate
from fleet.testing import forget_settings

ROOT = Path(__file__).parent.parent
_KEPT = ("FLEET_REDIS_URL", "FLEET_DATABASE_URL")

SEED = os.environ.get("TEST_SEED")

# How long an example takes depends on what else runs; and which examples there are is the same in every run, but where
# a seed is given. No failure is explained: Hypothesis traces for that, and a traced thread of CPython 3.11 spins for
# ever while a raise from outside waits for any blocked thread of its process, as tests of deadlines may leave one.
settings.register_profile(
    "nightshift",
    deadline=None,
    derandomize=SEED is None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
settings.load_profile("nightshift")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have Hypothesis, which reads its option after this, draw by the seed that is given."""
    if SEED is not None and config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = SEED


def pytest_report_header() -> list[str]:
    """The versions that this run is about: the pinned ones, or the lowest (`make test-lowest`); and its seed."""
    seed = [] if SEED is None else [f"TEST_SEED={SEED}: what is fuzzed is drawn by it"]
    return [f"dramatiq {dramatiq.__version__}, redis-py {redis.__version__}", *seed]


@pytest.fixture(scope="session")
def servers() -> Iterator[embedded.Urls]:
    """A Valkey or Redis and a PostgreSQL, started for the session where none is configured."""
    configured = Settings.read()
    wanted = embedded.Wanted(valkey=configured.redis_url is None, postgres=configured.database_url is None)
    for name in [name for name in os.environ if name.startswith(("FLEET_", "BOOKS_")) and name not in _KEPT]:
        del os.environ[name]
    with (
        tempfile.TemporaryDirectory(prefix="fleet-tests-", dir=_in_memory()) as folder,
        embedded.servers(Path(folder), wanted) as started,
    ):
        yield embedded.Urls(
            redis_url=configured.redis_url or started.redis_url,
            database_url=configured.database_url or started.database_url,
        )


def _in_memory() -> str | None:
    """Where a sync costs no disk, if there is room: each module makes a database, which is hundreds of files."""
    shared = Path("/dev/shm")
    return str(shared) if shared.is_dir() and shutil.disk_usage(shared).free > 4 << 30 else None


@pytest.fixture
def redis_url(servers: embedded.Urls) -> str:
    return servers.redis_url


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def namespace(redis_client: redis.Redis) -> Iterator[str]:
    """A Redis namespace of the test's own; its keys are removed afterwards."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield name
    for key in redis_client.scan_iter(f"{name}:*", count=1000):
        redis_client.delete(key)


@contextmanager
def made_database(server: str, template: str = "template1") -> Iterator[str]:
    """The URL of a database that is there for as long as the block."""
    url = storage.psycopg_url(server)
    name = f"test_{uuid.uuid4().hex[:12]}"
    admin = create_engine(url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'))
    yield url.set(database=name).render_as_string(hide_password=False)
    with admin.connect() as connection:
        connection.execute(text(f'DROP DATABASE "{name}" WITH (FORCE)'))
    admin.dispose()


@pytest.fixture(scope="module")
def database_url(servers: embedded.Urls) -> Iterator[str]:
    """The URL of an empty PostgreSQL database of the module's own."""
    with made_database(servers.database_url) as url:
        yield url


@pytest.fixture(scope="session")
def migrated_template(servers: embedded.Urls) -> Iterator[str]:
    """The name of a database with every migration applied; a copy of it is made in a tenth of the time they take."""
    with made_database(servers.database_url) as url:
        engine = create_engine(url)
        migrate(engine, ROOT)
        engine.dispose()  # nobody may be connected to what is copied
        name = engine.url.database
        assert name is not None
        yield name


@pytest.fixture(scope="module")
def migrated_url(servers: embedded.Urls, migrated_template: str) -> Iterator[str]:
    """The URL of a database of the module's own with every migration of the engine and the bookkeeping applied."""
    with made_database(servers.database_url, migrated_template) as url:
        yield url


@dataclass(frozen=True)
class Environment:
    """What `environment` put into the process's environment; a child process inherits it."""

    redis_url: str
    database_url: str
    namespace: str


@pytest.fixture
def environment(
    redis_url: str, namespace: str, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Environment]:
    """This process configured for the test's own namespace and the module's migrated database."""
    monkeypatch.setenv("FLEET_REDIS_URL", redis_url)
    monkeypatch.setenv("FLEET_DATABASE_URL", migrated_url)
    monkeypatch.setenv("FLEET_NAMESPACE", namespace)
    forget_settings()
    yield Environment(redis_url, migrated_url, namespace)
    storage.database().dispose()
    forget_settings()
    clock.set_night(None)


@pytest.fixture(autouse=True)
def no_actor_left_behind() -> Iterator[None]:
    """What a test declares for the process's broker is taken out again: a later test's application would have it."""
    known = set(application.process_broker().actors) if application.process_broker.cache_info().currsize else set()
    yield
    if application.process_broker.cache_info().currsize:
        broker = application.process_broker()
        for name, actor in list(broker.actors.items()):
            if name not in known and "/test_" in getattr(actor, "declared_at", ""):
                del broker.actors[name]
        broker.queues &= {actor.queue_name for actor in broker.actors.values()}


@pytest.fixture
def migrated(environment: Environment) -> Environment:
    """The name that tests of records use for `environment`."""
    return environment
