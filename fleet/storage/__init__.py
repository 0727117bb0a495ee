"""PostgreSQL: one engine and pool a process, made at first use.

`with session() as s:` is one transaction. Not guaranteed: a database at all; an application that uses no records runs
without one, and then `session()` raises `SettingsInvalid`.
"""

from fleet.storage.engine import database, session

__all__ = ["database", "session"]
