"""A batch has a state of its own, and whoever handed in a file or a batch can be told of its end.

Batches from before: one of which no file has begun waits for its message, as it did; one whose files have all ended is
done; the others are being read. Nobody is told of their ends.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "books_0004"
down_revision = "books_0003"
branch_labels = None
depends_on = None

COLUMNS: tuple[tuple[str, Any, dict[str, Any]], ...] = (
    ("status", sa.String(), {"nullable": False, "server_default": "queued"}),
    ("lease_token", sa.String(), {}),
    ("lease_message", sa.String(), {}),
    ("lease_until", sa.DateTime(timezone=True), {}),
    ("attempts", sa.BigInteger(), {"nullable": False, "server_default": "0"}),
    ("started_at", sa.DateTime(timezone=True), {}),
    ("finished_at", sa.DateTime(timezone=True), {}),
    ("outcome", sa.String(), {}),
    ("email", sa.String(), {}),
    ("queued_at", sa.DateTime(timezone=True), {"nullable": False, "server_default": sa.func.now()}),
    ("files_total", sa.BigInteger(), {}),
    ("files_done", sa.BigInteger(), {"nullable": False, "server_default": "0"}),
)


def upgrade() -> None:
    for name, kind, more in COLUMNS:
        op.add_column("upload_batches", sa.Column(name, kind, **more))
    op.create_index("ix_upload_batches_status", "upload_batches", ["status"])
    op.add_column("import_jobs", sa.Column("email", sa.String()))
    op.execute(
        """
        UPDATE upload_batches
        SET files_total = files.total, files_done = files.ended,
            status = CASE WHEN files.total > 0 AND files.queued = files.total THEN 'queued'
                          WHEN files.ended < files.total THEN 'reading'
                          WHEN files.read < files.total THEN 'done_with_errors'
                          ELSE 'done' END,
            finished_at = CASE WHEN files.ended = files.total THEN now() END,
            outcome = CASE WHEN files.ended = files.total THEN files.read || ' of ' || files.total || ' files read' END
        FROM (
            SELECT b.id, count(a.id) AS total, count(*) FILTER (WHERE a.status = 'queued') AS queued,
                   count(*) FILTER (WHERE a.status = 'read') AS read,
                   count(*) FILTER (WHERE a.status NOT IN ('queued', 'running')) AS ended
            FROM upload_batches b LEFT JOIN attachments a ON a.batch_id = b.id GROUP BY b.id
        ) files
        WHERE files.id = upload_batches.id
        """
    )


def downgrade() -> None:
    op.drop_column("import_jobs", "email")
    op.drop_index("ix_upload_batches_status", "upload_batches")
    for name, _, _ in reversed(COLUMNS):
        op.drop_column("upload_batches", name)
