"""One mail to whoever handed in a CSV or uploaded a batch, when it has ended: done, failed, timed out or given up.

The mail is an outside effect, written down with its text in the transaction that ends the row, whoever ends it (its
message, `on_lost`, a janitor); the message that mails it goes out with that commit. So each end has one mail, also
where its message comes twice, and a janitor sends one whose message was lost. An import that a person has go on ends
once more, and that end has a mail of its own.

Not guaranteed: that it arrives. A mail server cannot be asked, so a mail that may have gone out when its worker died is
parked for a person and never repeated; one that the server refuses five times is given up. The row says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from books import outside
from books.mail import deliver, greet, keyed_mail, message_id, outbound
from books.models import BatchStatus, EffectKind, EffectStatus, ImportJob, ImportStatus, OutsideEffect, UploadBatch
from books.outside import Receipt, Unclear
from fleet.actor import FleetActor
from fleet.app import process_broker
from fleet.logs import get_logger
from fleet.storage import session

log = get_logger(__name__)

_ACTOR = "mail_summary"
_ENDED: dict[str, str] = {
    ImportStatus.DONE: "done",
    ImportStatus.DONE_WITH_ERRORS: "done, with errors",
    ImportStatus.FAILED: "not done",
    BatchStatus.DONE: "done",
    BatchStatus.DONE_WITH_ERRORS: "done, with errors",
    BatchStatus.FAILED: "not done",
}


class SummaryMail:
    """The mail of one end; `subject` is "import 12, end 1"."""

    name, askable, gives_up = EffectKind.SUMMARY, False, True

    @contextmanager
    def ready(self, effect: OutsideEffect) -> Iterator[Callable[[], Receipt]]:
        mail = keyed_mail(effect.key, **effect.body)
        with outbound() as server:
            greet(server, mail)
            yield lambda: deliver(server, mail)

    def ask(self, effect: OutsideEffect) -> Receipt | None:
        raise Unclear(f"a mail server cannot be asked; look for {message_id(effect.key)} in its log")

    def unwanted(self, s: Session, effect: OutsideEffect) -> str | None:
        return None  # What it tells of has happened.

    def moved(self, s: Session, effect: OutsideEffect, status: EffectStatus, outcome: str) -> None:
        """Nothing: what it tells of has ended."""

    def message(self, effect: OutsideEffect) -> tuple[str, tuple[Any, ...]]:
        return _ACTOR, (effect.id,)


def send(effect_id: int, token: str) -> None:
    """Mail one summary, unless that was done, or is being done.

    Raises `MailNotSent`; `LeaseLost`; `DeadlineExceeded`.
    """
    with session() as s:
        held = outside.hold(s, effect_id, token)
    if held is None:
        log.info("summary_not_held", effect=effect_id, message_id=token)
        return
    outside.carry_out(SummaryMail(), held, park=True, give_up=False)


def import_moved(s: Session, job_id: int, told: str | None = None) -> None:
    """Have an import's end mailed in the transaction that ended it; of any other move nothing follows.

    `told` is what its owner is told in place of the outcome, which quotes nothing of the file.
    """
    moved = select(ImportJob.status, ImportJob.outcome, ImportJob.email, ImportJob.path).where(ImportJob.id == job_id)
    status, outcome, email, path = s.execute(moved).one()
    if status in _ENDED:
        _mail(s, "import", job_id, email, f"Import of {Path(path).name}: {_ENDED[status]}", told or outcome)


def batch_ended(s: Session, batch_id: int) -> None:
    """Have a batch's end mailed in the transaction that ended it."""
    ended = select(UploadBatch.status, UploadBatch.outcome, UploadBatch.email).where(UploadBatch.id == batch_id)
    status, outcome, email = s.execute(ended).one()
    _mail(s, "batch", batch_id, email, f"Upload {batch_id}: {_ENDED[status]}", outcome)


def _mail(s: Session, what: str, row_id: int, email: str | None, about: str, outcome: str | None) -> None:
    """The row is locked by the move, so nobody else counts its ends."""
    if email is None:
        return
    thing = f"{what} {row_id}, end "
    ours = (OutsideEffect.kind == EffectKind.SUMMARY) & OutsideEffect.subject.startswith(thing, autoescape=True)
    end = (s.scalar(select(func.count()).select_from(OutsideEffect).where(ours)) or 0) + 1
    body = {"to": email, "subject": " ".join(about.split()), "text": f"{outcome or about}\n"}
    key = f"{what}-{row_id}-{end}"
    effect_id = outside.write_down(s, EffectKind.SUMMARY, f"{thing}{end}", key=key, body=body)
    actor = cast("FleetActor[Any, Any]", process_broker().get_actor(_ACTOR))
    actor.send_with_options_on_commit(s, args=(effect_id,), expires_at=None)  # without the expiry of what ended it
