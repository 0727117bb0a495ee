"""The outbox: messages that go out with the commit of the rows they belong to."""

import sqlalchemy as sa
from alembic import op

revision = "fleet_0003"
down_revision = "fleet_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), primary_key=True),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("queue", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("redis_id", sa.String(), nullable=False),
        sa.Column("message", sa.LargeBinary(), nullable=False),
        sa.Column("delay", sa.BigInteger()),
        sa.Column("written_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
        sa.Column("relay_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("accepted_at", sa.DateTime(timezone=True)),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("refused", sa.String()),
    )
    op.create_index("ix_outbox_relay", "outbox", ["namespace", "relay_at", "id"])


def downgrade() -> None:
    op.drop_table("outbox")
