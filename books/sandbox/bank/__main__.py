"""`python -m books.sandbox.bank`: serves the aggregator until SIGTERM or SIGINT, which end it at once.

`--ready-file` appears, with the base URL in it, when the server listens. The night, if one is played, comes from the
settings' environment like in every other process.
"""

from __future__ import annotations

import argparse
from datetime import date

from books.sandbox import serving
from books.sandbox.bank.connections import FEWEST_ACCOUNTS
from books.sandbox.bank.ledger import BERLIN
from books.sandbox.bank.server import Aggregator
from fleet.clock import clock


def _arguments() -> argparse.Namespace:
    parser = serving.parser("books.sandbox.bank", "A seeded bank aggregator.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--accounts", type=int, default=300)
    parser.add_argument("--origin", type=date.fromisoformat, help="the ledger's today, YYYY-MM-DD; default: now")
    arguments = parser.parse_args()
    if arguments.accounts < FEWEST_ACCOUNTS:
        parser.error(f"--accounts {arguments.accounts}: at least {FEWEST_ACCOUNTS} are needed to have every kind")
    return arguments


def main() -> None:
    arguments = _arguments()
    serving.set_clock()
    origin = arguments.origin or clock.now().astimezone(BERLIN).date()
    aggregator = Aggregator(arguments.seed, arguments.accounts, origin, serving.Journal(arguments.log))
    serving.serve(aggregator.app(), arguments.port, arguments.ready_file, "sandbox bank")


if __name__ == "__main__":
    main()
