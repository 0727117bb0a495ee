"""PostgreSQL tells of every change to the categories when it is committed: processes keep them between changes."""

from alembic import op

revision = "books_0005"
down_revision = "books_0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE OR REPLACE FUNCTION fleet_tell_of_change() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_notify('fleet_reference', TG_TABLE_NAME);
            RETURN NULL;
        END $$
    """)
    op.execute("""
        CREATE TRIGGER categories_tell AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON categories
        FOR EACH STATEMENT EXECUTE FUNCTION fleet_tell_of_change()
    """)


def downgrade() -> None:
    op.execute("DROP TRIGGER categories_tell ON categories")
    op.execute("DROP FUNCTION fleet_tell_of_change()")
