"""Sorting remembers which delivery of a message took a row, and by which keywords none was found in it.

The release before may run beside it: it fills neither column, and finds its rows by the first column of the index.

Not guaranteed: that anybody reads or writes `transactions` while the index is made, of which a million open rows take a
second or two: columns that are added, and an index that is dropped, keep the table to themselves until the revision is
over.
"""

import sqlalchemy as sa
from alembic import op

revision = "books_0009"
down_revision = "books_0008"
branch_labels = None
depends_on = None

TO_SORT = sa.text("category_id IS NULL AND unsorted_because IS NULL")


def upgrade() -> None:
    op.add_column("transactions", sa.Column("sorting_delivery", sa.String()))
    op.add_column("transactions", sa.Column("unmatched_by", sa.BigInteger()))
    _to_sort("account_id", "unmatched_by", "id")


def downgrade() -> None:
    _to_sort("account_id", "id")
    op.drop_column("transactions", "unmatched_by")
    op.drop_column("transactions", "sorting_delivery")


def _to_sort(*columns: str) -> None:
    op.drop_index("ix_transactions_to_sort", "transactions")
    op.create_index("ix_transactions_to_sort", "transactions", list(columns), postgresql_where=TO_SORT)
