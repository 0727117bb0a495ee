"""The bookkeeping's first tables, and the categories every customer starts with."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "books_0001"
down_revision = None
branch_labels = ("books",)
depends_on = None

# A keyword is looked for in counterparty and purpose, without regard to case; the first category that has one wins.
CATEGORIES: tuple[tuple[str, list[str]], ...] = (
    ("Wages", ["lohn/gehalt", "gehalt", "payroll"]),
    ("Social security", ["sv-beiträge", "minijob", "krankenkasse"]),
    ("Taxes", ["finanzamt", "ust-va", "gewerbesteuer"]),
    ("Rent", ["miete", "hausverwaltung", "rent for"]),
    ("Energy", ["stadtwerke", "abschlag strom", "abschlag gas"]),
    ("Telephone and internet", ["telekommunikation", "mobilfunk", "broadband"]),
    ("Insurance", ["versicherung", "haftpflicht", "insurance"]),
    ("Fuel and vehicles", ["tankstelle", "tankhof", "kfz-steuer"]),
    ("Hosting and software", ["hosting", "domains", "saas"]),
    ("Office supplies", ["bürobedarf", "papier, toner", "office supplies"]),
    ("Groceries and meals", ["lebensmittelmarkt", "restaurant", "bewirtung"]),
    ("Travel", ["reisebüro", "hotel", "flugticket"]),
    ("Bank fees", ["kontoentgelt", "kontogebühr", "bank charges"]),
    ("Purchases and services", ["rechnung re-", "invoice in-"]),
    ("Revenue", ["kd-nr.", "danke für ihren auftrag", "customer payment"]),
    ("Other", []),
)


def _id(table: str) -> tuple[sa.schema.SchemaItem, ...]:
    return sa.Column("id", sa.BigInteger(), nullable=False), sa.PrimaryKeyConstraint("id", name=f"pk_{table}")


def _instant(name: str, *, filled: bool = False, nullable: bool = True) -> sa.Column[object]:
    default = sa.func.now() if filled else None
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable and not filled, server_default=default)


def _lease() -> tuple[sa.Column[object], ...]:
    return (
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("lease_token", sa.String()),
        _instant("lease_until"),
        sa.Column("attempts", sa.BigInteger(), nullable=False, server_default="0"),
        _instant("started_at"),
        _instant("finished_at"),
        sa.Column("outcome", sa.String()),
    )


def _unique(table: str, *columns: str) -> sa.UniqueConstraint:
    return sa.UniqueConstraint(*columns, name=f"uq_{table}_{'_'.join(columns)}")


def _reference(table: str, column: str, other: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{other}.id"], name=f"fk_{table}_{column}_{other}")


def _bank() -> None:
    op.create_table(
        "bank_connections",
        *_id("bank_connections"),
        sa.Column("requisition_id", sa.String(), nullable=False),
        sa.Column("institution", sa.String(), nullable=False),
        sa.Column("customer", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        _unique("bank_connections", "requisition_id"),
    )
    op.create_table(
        "bank_accounts",
        *_id("bank_accounts"),
        sa.Column("connection_id", sa.BigInteger()),
        sa.Column("external_id", sa.String(), nullable=False),
        sa.Column("iban", sa.String()),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("currency", sa.String(), nullable=False),
        sa.Column("customer", sa.String(), nullable=False),
        sa.Column("balance_cents", sa.BigInteger()),
        _instant("balance_at"),
        sa.Column("opening_cents", sa.BigInteger()),
        sa.Column("synced_through", sa.Date()),
        _instant("last_synced_at"),
        sa.Column("pages_done", sa.BigInteger(), nullable=False, server_default="0"),
        *_lease(),
        _unique("bank_accounts", "external_id"),
        _reference("bank_accounts", "connection_id", "bank_connections"),
    )
    op.create_index("ix_bank_accounts_connection_id", "bank_accounts", ["connection_id"])
    op.create_index("ix_bank_accounts_status", "bank_accounts", ["status"])


def _transactions() -> None:
    categories = op.create_table(
        "categories",
        *_id("categories"),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("keywords", postgresql.ARRAY(sa.String()), nullable=False),
        _unique("categories", "name"),
    )
    op.bulk_insert(categories, [{"name": name, "keywords": keywords} for name, keywords in CATEGORIES])
    op.create_table(
        "transactions",
        *_id("transactions"),
        sa.Column("account_id", sa.BigInteger(), nullable=False),
        sa.Column("external_id", sa.String(), nullable=False),
        sa.Column("booked", sa.Boolean(), nullable=False),
        sa.Column("booking_date", sa.Date(), nullable=False),
        sa.Column("value_date", sa.Date()),
        sa.Column("amount_cents", sa.BigInteger(), nullable=False),
        sa.Column("currency", sa.String(), nullable=False),
        sa.Column("counterparty", sa.String()),
        sa.Column("remittance", sa.String(), nullable=False),
        sa.Column("category_id", sa.BigInteger()),
        sa.Column("categorized_by", sa.String()),
        sa.Column("stored_by", sa.String(), nullable=False),
        _instant("stored_at", filled=True),
        _unique("transactions", "account_id", "external_id"),
        _reference("transactions", "account_id", "bank_accounts"),
        _reference("transactions", "category_id", "categories"),
    )
    where = sa.text("category_id IS NULL")
    op.create_index("ix_transactions_uncategorized", "transactions", ["id"], postgresql_where=where)


def _documents() -> None:
    op.create_table(
        "upload_batches",
        *_id("upload_batches"),
        sa.Column("customer", sa.String(), nullable=False),
        _instant("uploaded_at", filled=True),
    )
    op.create_table(
        "attachments",
        *_id("attachments"),
        sa.Column("batch_id", sa.BigInteger()),
        sa.Column("customer", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        _instant("queued_at", filled=True),
        sa.Column("method", sa.String()),
        sa.Column("text_length", sa.BigInteger()),
        sa.Column("merchant", sa.String()),
        sa.Column("issued_on", sa.Date()),
        sa.Column("gross_cents", sa.BigInteger()),
        sa.Column("vat_cents", sa.BigInteger()),
        sa.Column("currency", sa.String()),
        *_lease(),
        _reference("attachments", "batch_id", "upload_batches"),
    )
    op.create_index("ix_attachments_batch_id", "attachments", ["batch_id"])
    op.create_index("ix_attachments_status", "attachments", ["status"])


def _agents() -> None:
    op.create_table(
        "agent_runs",
        *_id("agent_runs"),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("idempotency_key", sa.String(), nullable=False),
        sa.Column("customer", sa.String(), nullable=False),
        _instant("queued_at", filled=True),
        sa.Column("input", postgresql.JSONB(), nullable=False),
        sa.Column("result", postgresql.JSONB()),
        *_lease(),
        _unique("agent_runs", "idempotency_key"),
    )
    op.create_index("ix_agent_runs_status", "agent_runs", ["status"])
    op.create_table(
        "agent_steps",
        *_id("agent_steps"),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("input", postgresql.JSONB(), nullable=False),
        sa.Column("output", postgresql.JSONB(), nullable=False),
        sa.Column("duration_ms", sa.BigInteger(), nullable=False),
        sa.Column("stored_by", sa.String(), nullable=False),
        _instant("stored_at", filled=True),
        _unique("agent_steps", "run_id", "number"),
        _reference("agent_steps", "run_id", "agent_runs"),
    )
    op.create_table(
        "findings",
        *_id("findings"),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        _instant("found_at", nullable=False),
        _instant("promoted_at"),
        _unique("findings", "kind", "subject"),
    )


def _imports() -> None:
    op.create_table(
        "import_jobs",
        *_id("import_jobs"),
        sa.Column("account_id", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        _instant("queued_at", filled=True),
        sa.Column("rows_total", sa.BigInteger()),
        sa.Column("rows_done", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("rows_failed", sa.BigInteger(), nullable=False, server_default="0"),
        *_lease(),
        _reference("import_jobs", "account_id", "bank_accounts"),
    )
    op.create_index("ix_import_jobs_status", "import_jobs", ["status"])
    op.create_table(
        "import_row_errors",
        *_id("import_row_errors"),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("row_number", sa.BigInteger(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        _unique("import_row_errors", "job_id", "row_number"),
        _reference("import_row_errors", "job_id", "import_jobs"),
    )


def _invoices() -> None:
    op.create_table(
        "invoices",
        *_id("invoices"),
        sa.Column("number", sa.String(), nullable=False),
        sa.Column("customer", sa.String(), nullable=False),
        sa.Column("customer_email", sa.String(), nullable=False),
        sa.Column("amount_cents", sa.BigInteger(), nullable=False),
        sa.Column("currency", sa.String(), nullable=False),
        sa.Column("due_on", sa.Date(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("message_id", sa.String()),
        _instant("sent_at"),
        sa.Column("outcome", sa.String()),
        _unique("invoices", "number"),
    )
    op.create_index("ix_invoices_status", "invoices", ["status"])


def upgrade() -> None:
    _bank()
    _transactions()
    _documents()
    _agents()
    _imports()
    _invoices()


def downgrade() -> None:
    for table in (
        "invoices",
        "import_row_errors",
        "import_jobs",
        "findings",
        "agent_steps",
        "agent_runs",
        "attachments",
        "upload_batches",
        "transactions",
        "categories",
        "bank_accounts",
        "bank_connections",
    ):
        op.drop_table(table)
