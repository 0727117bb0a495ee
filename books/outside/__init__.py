"""What leaves the house: filings, charges, mails. Each is done once, or a person is told that nobody can tell.

    intend    one row a thing, unique, in the caller's transaction: the only way out
    carry out called_at noted, then the call under the row's Idempotency-Key, then the outcome
    resolve   a janitor's: rows whose worker is gone; the other side is asked by key before anything is sent again
    review    a person's: rows of which nobody can tell (`python -m books.review`)

Not guaranteed: that everything is done. What the other side refuses, or nobody can tell, ends readably instead. Nor
that the other side keeps its keys for ever; it must for as long as a row may be `waiting` or `running`.
"""

from books.outside.answers import Limited, NotTaken, Receipt, Refused, Unclear
from books.outside.effects import Kind, carry_out, hold, intend, let_go, write_down
from books.outside.resolving import Resolved, Unresolved, resolve

__all__ = [
    "Kind",
    "Limited",
    "NotTaken",
    "Receipt",
    "Refused",
    "Resolved",
    "Unclear",
    "Unresolved",
    "carry_out",
    "hold",
    "intend",
    "let_go",
    "resolve",
    "write_down",
]
