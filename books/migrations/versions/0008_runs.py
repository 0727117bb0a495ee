"""The engine finds runs, imports, uploads and what left the house in the view `fleet_runs`."""

from alembic import op

revision = "books_0008"
down_revision = "books_0007"
branch_labels = None
depends_on = None

_CHANGED = {
    "agent_runs": "coalesce(finished_at, started_at, queued_at)",
    "import_jobs": "coalesce(finished_at, started_at, queued_at)",
    "upload_batches": "coalesce(finished_at, started_at, queued_at)",
    "outside_effects": "coalesce(finished_at, started_at, intended_at)",
}
_RUNS = "('queued', 'running', 'approved', 'submitting')"
_BATCHES = "('queued', 'running', 'reading')"


def upgrade() -> None:
    for table, changed in _CHANGED.items():
        op.execute(f"CREATE INDEX ix_{table}_changed ON {table} (({changed}))")
        op.execute(f"CREATE INDEX ix_{table}_shown ON {table} ((id::text))")
    # An outcome can quote what the other side said; of what left the house only the state is shown.
    op.execute(f"""
        CREATE VIEW fleet_runs AS
        SELECT kind, id::text AS id, status, NULL::bigint AS done, NULL::bigint AS total, outcome,
            status = 'needs_review' AS needs_review, status IN {_RUNS} AS open,
            {_CHANGED["agent_runs"]} AS updated_at, lease_message, lease_until FROM agent_runs
        UNION ALL
        SELECT 'import', id::text, status, rows_done + rows_failed, rows_total, outcome, false,
            status IN ('queued', 'running'), {_CHANGED["import_jobs"]}, lease_message, lease_until
        FROM import_jobs
        UNION ALL
        SELECT 'upload', id::text, status, files_done, files_total, outcome, false, status IN {_BATCHES},
            {_CHANGED["upload_batches"]}, lease_message, lease_until FROM upload_batches
        UNION ALL
        SELECT kind, id::text, status, NULL, NULL, NULL, status = 'needs_review', status IN ('waiting', 'running'),
            {_CHANGED["outside_effects"]}, lease_message, lease_until FROM outside_effects
    """)


def downgrade() -> None:
    op.execute("DROP VIEW fleet_runs")
    for table in _CHANGED:
        op.execute(f"DROP INDEX ix_{table}_changed")
        op.execute(f"DROP INDEX ix_{table}_shown")
