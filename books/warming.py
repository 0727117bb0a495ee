"""What a worker process has ready before a person's first job comes to it."""

from __future__ import annotations

from sqlalchemy import text

from books import clients
from fleet.storage import session


def people() -> None:
    """Load the model's SDK, make the clients that a run and an upload use, and open a connection to the database."""
    clients.model()
    clients.authority()
    with session() as s:
        s.execute(text("SELECT 1"))
