"""The bookkeeping's records. Amounts are integer cents with a currency; every status is explained where it is defined.

Not guaranteed: transitions. Who may move a row from one status to the next is in the module that moves it; rows with a
`Lease` are moved by conditional updates alone.
"""

from books.models.agents import AgentRun, AgentStep, Finding, RunKind, RunStatus
from books.models.bank import AccountStatus, BankAccount, BankConnection, Category, ConnectionStatus, Transaction
from books.models.base import Base
from books.models.documents import Attachment, AttachmentStatus, BatchStatus, UploadBatch
from books.models.imports import ImportJob, ImportRowError, ImportStatus
from books.models.invoices import Invoice, InvoiceStatus
from books.models.outside import EffectKind, EffectStatus, OutsideEffect, Subscription, SubscriptionStatus
from books.models.turns import BacklogTurn

__all__ = [
    "AccountStatus",
    "AgentRun",
    "AgentStep",
    "Attachment",
    "AttachmentStatus",
    "BacklogTurn",
    "BankAccount",
    "BankConnection",
    "Base",
    "BatchStatus",
    "Category",
    "ConnectionStatus",
    "EffectKind",
    "EffectStatus",
    "Finding",
    "ImportJob",
    "ImportRowError",
    "ImportStatus",
    "Invoice",
    "InvoiceStatus",
    "OutsideEffect",
    "RunKind",
    "RunStatus",
    "Subscription",
    "SubscriptionStatus",
    "Transaction",
    "UploadBatch",
]
