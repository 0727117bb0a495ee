"""Alembic's environment for every branch: the engine's and the application's.

The connection is handed over by `fleet.storage.migrate`; there is no alembic.ini.
"""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, transaction_per_migration=True, version_table="fleet_migrations")
with context.begin_transaction():
    context.run_migrations()
