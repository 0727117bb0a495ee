"""The sandbox's bank aggregator: the GoCardless Bank Account Data API v2 over real HTTP, seeded.

`connections` says who is connected to what, `ledger` what happened on an account, `weather` what goes wrong and how
long it takes, `server` answers. `seed_connections` needs no server: the night writes its rows from it.
"""

from books.sandbox.bank.connections import Connection, SeededAccount, seed_connections

__all__ = ["Connection", "SeededAccount", "seed_connections"]
