"""One row a slot, which a message claims before its body runs; the record of runs becomes part of it.

Of several messages that ran for one slot the latest is kept, and `fires` says how many there were. A run without an end
keeps no lease: whoever comes next takes its slot over.
"""

import sqlalchemy as sa
from alembic import op

revision = "fleet_0002"
down_revision = "fleet_0001"
branch_labels = None
depends_on = None

_CARRY_OVER = """
    INSERT INTO slots (
        entry, slot, state, nonce, token, message_id, lease_until, claimed_at, started_at, ended_at, fires, starts
    )
    SELECT DISTINCT ON (entry, slot)
        entry, slot,
        CASE WHEN outcome IS NULL THEN 'running' WHEN outcome = 'retried' THEN 'waiting' ELSE outcome END,
        message_id, message_id, message_id,
        CASE WHEN outcome IS NULL OR outcome = 'retried' THEN now() END,
        started_at, started_at,
        CASE WHEN outcome <> 'retried' THEN ended_at END,
        count(*) OVER slots, sum(starts) OVER slots
    FROM slot_runs
    WINDOW slots AS (PARTITION BY entry, slot)
    ORDER BY entry, slot, started_at DESC
"""
_CARRY_BACK = """
    INSERT INTO slot_runs (entry, slot, message_id, starts, started_at, started_night, ended_at, outcome)
    SELECT entry, slot, message_id, starts, started_at, started_at, ended_at,
        CASE state WHEN 'running' THEN NULL WHEN 'waiting' THEN 'retried' ELSE state END
    FROM slots
"""


def upgrade() -> None:
    op.create_table(
        "slots",
        sa.Column("entry", sa.String(), primary_key=True),
        sa.Column("slot", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("nonce", sa.String(), nullable=False),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True)),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("fires", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("starts", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("refused", sa.Integer(), nullable=False, server_default="0"),
    )
    op.create_index("ix_slots_claimed_at", "slots", ["claimed_at"])
    op.execute(_CARRY_OVER)
    op.drop_table("slot_runs")


def downgrade() -> None:
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
    op.execute(_CARRY_BACK)
    op.drop_table("slots")
