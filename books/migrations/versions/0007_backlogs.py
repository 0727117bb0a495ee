"""Backlogs that chunks drain: what a chunk holds, whose turn it is, and the indexes that both are found by.

Not guaranteed: that anybody reads or writes `transactions` or `attachments` while the indexes are made, of which a
million open rows take a second or two: a column that is added, and an index that is dropped, keep a table to themselves
until the revision is over. `bank_accounts` and `agent_runs` are read, and not written.
"""

import sqlalchemy as sa
from alembic import op

revision = "books_0007"
down_revision = "books_0006"
branch_labels = None
depends_on = None
rolls_because = "the index that goes is not unique, so that no ON CONFLICT needs it: what looked there is slower"

TO_SORT = sa.text("category_id IS NULL AND unsorted_because IS NULL")
SORTING = sa.text("category_id IS NULL AND unsorted_because IS NULL AND sorting_message IS NOT NULL")
OF_BACKLOG = sa.text("backlog AND status = 'queued'")
EVALS = sa.text("kind = 'eval' AND status = 'queued'")


def upgrade() -> None:
    op.add_column("transactions", sa.Column("sorting_message", sa.String()))
    op.add_column("transactions", sa.Column("sorting_until", sa.DateTime(timezone=True)))
    op.add_column("transactions", sa.Column("sorting_tries", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("transactions", sa.Column("unsorted_because", sa.String()))
    op.create_index("ix_transactions_to_sort", "transactions", ["account_id", "id"], postgresql_where=TO_SORT)
    op.create_index("ix_transactions_sorting", "transactions", ["sorting_message"], postgresql_where=SORTING)
    op.drop_index("ix_transactions_uncategorized", "transactions")
    op.create_index("ix_bank_accounts_customer", "bank_accounts", ["customer", "id"])
    op.add_column("attachments", sa.Column("backlog", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_index("ix_attachments_backlog", "attachments", ["customer", "id"], postgresql_where=OF_BACKLOG)
    op.create_index("ix_agent_runs_evals", "agent_runs", ["customer", "id"], postgresql_where=EVALS)
    op.create_table(
        "backlog_turns",
        sa.Column("backlog", sa.String(), primary_key=True),
        sa.Column("customer", sa.String(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("backlog_turns")
    op.drop_index("ix_agent_runs_evals", "agent_runs")
    op.drop_index("ix_attachments_backlog", "attachments")
    op.drop_column("attachments", "backlog")
    op.drop_index("ix_bank_accounts_customer", "bank_accounts")
    op.create_index(
        "ix_transactions_uncategorized", "transactions", ["id"], postgresql_where=sa.text("category_id IS NULL")
    )
    op.drop_index("ix_transactions_sorting", "transactions")
    op.drop_index("ix_transactions_to_sort", "transactions")
    for name in ("unsorted_because", "sorting_tries", "sorting_until", "sorting_message"):
        op.drop_column("transactions", name)
