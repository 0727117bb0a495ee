"""A lease names the message that a row is worked on for beside the one delivery that holds it.

Until now the token was the message, so a row that is held while this runs is its message's afterwards too. An account
says up to when its sync answers requests.
"""

import sqlalchemy as sa
from alembic import op

revision = "books_0002"
down_revision = "books_0001"
branch_labels = None
depends_on = None

LEASED = ("bank_accounts", "attachments", "agent_runs", "import_jobs")


def upgrade() -> None:
    for table in LEASED:
        op.add_column(table, sa.Column("lease_message", sa.String()))
        op.execute(f"UPDATE {table} SET lease_message = lease_token WHERE lease_token IS NOT NULL")
    op.add_column("bank_accounts", sa.Column("covers_until", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("bank_accounts", "covers_until")
    for table in LEASED:
        op.execute(f"UPDATE {table} SET lease_token = lease_message WHERE lease_message IS NOT NULL")
        op.drop_column(table, "lease_message")
