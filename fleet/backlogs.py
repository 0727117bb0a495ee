"""Bounds what a process that counts backlogs may ask its database.

The leading beat counts what is left of each elastic entry once a night minute (`fleet.app.backlog_of`). In its process
a statement ends after two seconds, whatever it is: a count that takes longer has no index, and who cannot count does
not decide.

Not guaranteed: a count that ends where its function waits for something else than the database.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fleet import wire

LONGEST_STATEMENT = timedelta(seconds=2)  # real


def bound_statements() -> None:
    """Have every statement of this process's database end after `LONGEST_STATEMENT`; for one that only counts."""
    from fleet.app import settings

    if not settings().database_url:
        return
    from sqlalchemy import event

    from fleet.storage import database

    @event.listens_for(database(), "connect")
    def bound(connection: Any, _: object) -> None:
        connection.autocommit = True
        connection.execute(f"SET statement_timeout = {wire.duration_ms(LONGEST_STATEMENT)}")
        connection.autocommit = False
