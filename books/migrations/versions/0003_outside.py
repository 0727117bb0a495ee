"""What leaves the house has a row of its own; subscriptions; and mails in doubt become a status one can read."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "books_0003"
down_revision = "books_0002"
branch_labels = None
depends_on = None


def _instant(name: str, *, filled: bool = False) -> sa.Column[object]:
    default = sa.func.now() if filled else None
    return sa.Column(name, sa.DateTime(timezone=True), nullable=not filled, server_default=default)


def upgrade() -> None:
    op.create_table(
        "outside_effects",
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("body", postgresql.JSONB(), nullable=False),
        _instant("intended_at", filled=True),
        _instant("called_at"),
        sa.Column("receipt", sa.String()),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("lease_token", sa.String()),
        sa.Column("lease_message", sa.String()),
        _instant("lease_until"),
        sa.Column("attempts", sa.BigInteger(), nullable=False, server_default="0"),
        _instant("started_at"),
        _instant("finished_at"),
        sa.Column("outcome", sa.String()),
        sa.PrimaryKeyConstraint("id", name="pk_outside_effects"),
        sa.UniqueConstraint("kind", "subject", name="uq_outside_effects_kind_subject"),
        sa.UniqueConstraint("key", name="uq_outside_effects_key"),
    )
    op.create_index("ix_outside_effects_status", "outside_effects", ["status"])
    op.create_table(
        "subscriptions",
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.Column("customer", sa.String(), nullable=False),
        sa.Column("plan", sa.String(), nullable=False),
        sa.Column("amount_cents", sa.BigInteger(), nullable=False),
        sa.Column("currency", sa.String(), nullable=False),
        sa.Column("method", sa.String(), nullable=False),
        sa.Column("billing_day", sa.BigInteger(), nullable=False),
        sa.Column("next_period", sa.Date(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("outcome", sa.String()),
        sa.PrimaryKeyConstraint("id", name="pk_subscriptions"),
    )
    op.create_index("ix_subscriptions_status", "subscriptions", ["status"])
    # A mail that was claimed and not known to be sent: until now `sent` without `sent_at`.
    op.execute(
        """
        INSERT INTO outside_effects (kind, subject, key, body, called_at, status, finished_at, outcome)
        SELECT 'mail', 'invoice ' || id, 'invoice-' || number, jsonb_build_object('message_id', message_id), now(),
               'needs_review', now(), coalesce(outcome, 'find out whether its mail went out')
        FROM invoices WHERE status = 'sent' AND sent_at IS NULL
        """
    )
    op.execute("UPDATE invoices SET status = 'needs_review' WHERE status = 'sent' AND sent_at IS NULL")


def downgrade() -> None:
    op.execute("UPDATE invoices SET status = 'sent' WHERE status = 'needs_review'")
    op.drop_table("subscriptions")
    op.drop_table("outside_effects")
