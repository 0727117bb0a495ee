"""The audit: who did what to the fleet, and why."""

import sqlalchemy as sa
from alembic import op

revision = "fleet_0004"
down_revision = "fleet_0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fleet_audit",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), primary_key=True),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
        sa.Column("who", sa.String(), nullable=False),
        sa.Column("what", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("because", sa.String(), nullable=False),
        sa.Column("before", sa.String()),
        sa.Column("after", sa.String()),
    )
    op.create_index("ix_fleet_audit_at", "fleet_audit", ["namespace", "at"])


def downgrade() -> None:
    op.drop_table("fleet_audit")
