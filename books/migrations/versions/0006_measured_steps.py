"""A step says which actor took it and which model answered, and the engine finds steps in the view `fleet_steps`."""

import sqlalchemy as sa
from alembic import op

revision = "books_0006"
down_revision = "books_0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("agent_steps", sa.Column("actor", sa.String()))
    op.add_column("agent_steps", sa.Column("model", sa.String()))
    op.execute("""
        CREATE VIEW fleet_steps AS
        SELECT stored_by AS job, actor, kind, CASE kind WHEN 'model' THEN model ELSE name END AS called,
            duration_ms * interval '1 millisecond' AS took, stored_at AS ended_at
        FROM agent_steps
    """)


def downgrade() -> None:
    op.execute("DROP VIEW fleet_steps")
    op.drop_column("agent_steps", "model")
    op.drop_column("agent_steps", "actor")
