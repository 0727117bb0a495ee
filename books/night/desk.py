"""What people do in the night: their uploads and requests, sent by `actor.send` as a web process would.

Customers' rows are in the books before the evening; their messages go out at their hour, so that the night's lanes see
work from people beside the schedule's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from books.night.plan import ACCOUNTS, BACKLOG, EVALS, OCR_RECEIPTS, RECEIPTS, SUBMISSIONS, UPLOADS, at
from books.sandbox import receipts
from books.sandbox.bank import seed_connections
from books.seed_files import write_broken_csv, write_good_csv
from books.seeding import Expected, seed_night
from fleet import app as application
from fleet.clock import clock
from fleet.logs import get_logger
from fleet.storage import session

log = get_logger(__name__)

# Night time at which each kind of message is sent; a person who approves does so in the morning.
_HOURS = {
    "extract_batch": at(0, 20),
    "import_csv": at(0, 40),
    "prepare_run": at(0, 50),
    "submit_approved_run": at(6, 30),
}
_SPREAD_MINUTES = 5  # between two messages of a kind
PEOPLE = "people.jsonl"  # in a night's folder: what people sent, and when
LOOKS_EVERY = timedelta(seconds=0.01)  # real: who is due is seen by then


def fill(
    inbox: Path,
    *,
    seed: int,
    today: date,
    backlog: int = BACKLOG,
    submissions: int = SUBMISSIONS,
    evals: int = EVALS,
    night: int = 0,
) -> Expected:
    """Draw the receipts and CSV files into `inbox` and write the rows of the first night, or of a further one."""
    inbox.mkdir(parents=True, exist_ok=True)
    drawn = receipts.draw(seed, inbox, count=RECEIPTS, ocr=OCR_RECEIPTS)
    broken = receipts.draw_broken(inbox)
    with session() as s:
        return seed_night(
            s,
            connections=() if night else seed_connections(seed, ACCOUNTS),
            receipts=[receipt.path for receipt in drawn],
            broken_receipts=broken,
            good_csv=write_good_csv(inbox / "cash book.csv", seed, today),
            broken_csv=write_broken_csv(inbox / "kassenbuch.csv", seed, today),
            seed=seed,
            today=today,
            backlog=[drawn[number % len(drawn)].path for number in range(backlog)],
            uploads=[drawn[number * len(drawn) // UPLOADS].path for number in range(UPLOADS)],
            submissions=submissions,
            evals=evals,
            night=night,
        )


class Desk:
    """Sends each message when its hour has come; with a `journal`, writes a line of JSON of each there."""

    def __init__(self, expected: Expected, *, seed: int = 0, journal: Path | None = None) -> None:
        self._journal = journal
        self._waiting = sorted(_timed(expected, Random(f"desk {seed}")), key=lambda item: item[0])
        self.sent: dict[tuple[str, Any], datetime] = {}
        """(actor, first argument) -> the real instant it was sent at, or would have been if nothing had held it up."""

    def send_all(self) -> None:
        """Send everything at once, whatever its hour."""
        while self._waiting:
            self.act(self._waiting[-1][0])

    def act(self, now: datetime) -> None:
        """Send everything due by this night instant; what could not be sent is raised, and is due again next time."""
        while self._waiting and self._waiting[0][0] <= now:
            due, actor, arguments = self._waiting[0]
            asked = min(clock.real_now(), clock.to_real_instant(due) + LOOKS_EVERY)
            self.sent.setdefault((actor, arguments[0]), asked)  # who asks again waits since the first time
            application.process_broker().get_actor(actor).send(*arguments)
            del self._waiting[0]
            log.info("person_asks", actor=actor)
            self._note(actor, arguments[0])

    def _note(self, actor: str, about: Any) -> None:
        if self._journal is not None:
            line = {"actor": actor, "about": about, "real": self.sent[actor, about].timestamp()}
            with self._journal.open("a") as journal:
                journal.write(json.dumps(line) + "\n")


def _timed(expected: Expected, draw: Random) -> Iterator[tuple[datetime, str, tuple[Any, ...]]]:
    sent: dict[str, int] = {}
    many = len(expected.submit_runs) > SUBMISSIONS
    for actor, arguments in expected.messages:
        number = sent[actor] = sent.get(actor, -1) + 1
        if actor == "submit_approved_run" and many:
            yield _some_time(draw), actor, arguments
        elif actor == "extract_data_from_attachment":
            yield _while_backlogs_drain(draw, number / len(expected.uploads)), actor, arguments
        else:
            yield _HOURS[actor] + timedelta(minutes=_SPREAD_MINUTES * number), actor, arguments


def _while_backlogs_drain(draw: Random, share: float) -> datetime:
    first, last = at(2, 0), at(5, 30)  # behind the evening's batch, also where a night is played fast
    return first + share * (last - first) + draw.random() * timedelta(minutes=20)


def _some_time(draw: Random) -> datetime:
    """Two in five by night, one in seven while the banks' answers are fetched, the others when offices open."""
    kind = draw.random()
    first, last = (at(6, 30), at(7, 40))
    if kind < 0.4:
        first, last = at(0, 30), at(6, 0)
    elif kind < 0.4 + 1 / 7:
        first, last = at(1, 0), at(1, 20)
    return first + draw.random() * (last - first)
