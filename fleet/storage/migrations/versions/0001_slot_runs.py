"""The record of what ran for each slot."""

import sqlalchemy as sa
from alembic import op

revision = "fleet_0001"
down_revision = None
branch_labels = ("fleet",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "slot_runs",
        sa.Column("entry", sa.String(), primary_key=True),
        sa.Column("slot", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("message_id", sa.String(), primary_key=True),
        sa.Column("starts", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("started_night", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("outcome", sa.String()),
    )


def downgrade() -> None:
    op.drop_table("slot_runs")
