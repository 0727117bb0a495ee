"""A process that counts backlogs ends every statement of its database after two seconds."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from fleet import backlogs
from fleet.storage import session
from tests.conftest import Environment


def test_a_count_that_takes_too_long_is_ended_and_the_next_one_is_not(environment: Environment) -> None:
    backlogs.bound_statements()
    began = time.monotonic()
    with pytest.raises(OperationalError, match="statement timeout"), session() as s:
        s.execute(text("SELECT pg_sleep(30)"))
    assert time.monotonic() - began < 25
    with session() as s:
        assert s.scalar(text("SELECT 1")) == 1
