"""A lane for chaos tests in the test's own folder and Redis namespace, a seeded die, and a way to say figures."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.chaos.workers.lane import ChaosLane
from tests.workers.conftest import Running
from tests.workers.conftest import supervise as supervise

APP = Path(__file__).parent / "app"


@pytest.fixture
def lane(
    supervise: Callable[..., Running], redis_client: redis.Redis, redis_url: str, namespace: str, tmp_path: Path
) -> Iterator[ChaosLane]:
    app = shutil.copytree(APP, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    made = ChaosLane(supervise, redis_client, redis_url, namespace, tmp_path, app)
    yield made
    made.end()


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Prints a line past the capturing of a passing test's output: figures are why these tests are read."""

    def print_now(line: str) -> None:
        with capsys.disabled():
            print(f"\n{request.node.name}: {line}")

    return print_now


@pytest.fixture
def die(say: Callable[[str], None]) -> random.Random:
    """Seeded by TEST_SEED, or anew; the seed is printed."""
    seed = int(os.environ.get("TEST_SEED", random.SystemRandom().randrange(1_000_000)))
    say(f"seed {seed}")
    return random.Random(seed)
