"""A lease names the message that a row is worked on for beside the one delivery that holds it.

Until now the token was the message, so a row that is held while this runs is its message's afterwards too. An account
says up to when its sync answers requests, and a run's step which input it answers.
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
    # No digest is empty: what an earlier version stored is taken anew, once, by runs that wait while this runs.
    op.add_column("agent_steps", sa.Column("input_digest", sa.String(), nullable=False, server_default=""))
    op.alter_column("agent_steps", "input_digest", server_default=None)
    op.drop_constraint("uq_agent_steps_run_id_number", "agent_steps")
    op.create_unique_constraint(
        "uq_agent_steps_run_id_number_input_digest", "agent_steps", ["run_id", "number", "input_digest"]
    )
    op.add_column("bank_accounts", sa.Column("covers_until", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("bank_accounts", "covers_until")
    op.drop_constraint("uq_agent_steps_run_id_number_input_digest", "agent_steps")
    op.execute(
        "DELETE FROM agent_steps one USING agent_steps later"
        " WHERE one.run_id = later.run_id AND one.number = later.number AND one.id < later.id"
    )
    op.create_unique_constraint("uq_agent_steps_run_id_number", "agent_steps", ["run_id", "number"])
    op.drop_column("agent_steps", "input_digest")
    for table in LEASED:
        op.execute(f"UPDATE {table} SET lease_token = lease_message WHERE lease_message IS NOT NULL")
        op.drop_column(table, "lease_message")
