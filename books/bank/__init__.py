"""The bank aggregator: the public GoCardless Bank Account Data API v2, typed and in integer cents.

`client` speaks HTTP, `answers` (by `reader`) reads what comes back, `refusals` names what went wrong. Each says what it
does not guarantee. Importing any of them opens no connection.
"""

from books.bank.answers import (
    Account,
    Balance,
    BankTransaction,
    Requisition,
    TransactionPage,
)
from books.bank.client import BankClient
from books.bank.refusals import (
    BankAnswerInvalid,
    BankRefused,
    BankUnavailable,
    ConsentExpired,
    RateLimited,
)

__all__ = [
    "Account",
    "Balance",
    "BankAnswerInvalid",
    "BankClient",
    "BankRefused",
    "BankTransaction",
    "BankUnavailable",
    "ConsentExpired",
    "RateLimited",
    "Requisition",
    "TransactionPage",
]
