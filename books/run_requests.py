"""What applications call to have the agent work on something, once a key, and to hear what came of it.

`request` may be called as often as one likes with one idempotency key: the first call makes the run and sends its
message with the commit, every other one answers with the run there is, waiting, running or ended, and its result. Of
two that arrive at once the second waits until the first has committed. So a client whose answer was lost asks again,
and one that waits for a result asks again later.

Not guaranteed: that a run which failed is tried again; a new key asks anew. On failure: a key that was used for another
request raises `KeyReused` and changes nothing; a caller whose transaction is rolled back has requested nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from sqlalchemy import literal, select
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.orm import Session

from books.digests import digest
from books.models import AgentRun, RunKind, RunStatus
from fleet.actor import FleetActor
from fleet.app import process_broker
from fleet.errors import FleetError

Kind = Literal[RunKind.PREPARE, RunKind.SUBMIT]
_ACTORS: Mapping[Kind, tuple[str, RunStatus]] = {
    RunKind.PREPARE: ("prepare_run", RunStatus.QUEUED),
    RunKind.SUBMIT: ("submit_approved_run", RunStatus.APPROVED),
}
"""The actor that works on a run of a kind, and the status in which a run waits for it."""


class KeyReused(FleetError):
    """Raised when an idempotency key comes again with another request than it was first used for."""

    def __init__(self, key: str, run: AgentRun, *, asked: str, found: str) -> None:
        super().__init__(
            f"The idempotency key {key!r} belongs to agent run {run.id} ({run.kind}, {run.status}), whose request has "
            f"the digest {found[:16]}; this one has {asked[:16]}. Ask with the same kind, customer and input to hear "
            f"of that run, or draw a new key for another one."
        )
        self.key, self.run_id, self.asked, self.found = key, run.id, asked, found


@dataclass(frozen=True)
class RequestedRun:
    """A run as it is now. `result` is None until it has one; `new` says that this very request made it."""

    id: int
    status: RunStatus
    outcome: str | None
    result: dict[str, Any] | None
    new: bool


def request(s: Session, kind: Kind, customer: str, given: Mapping[str, Any], *, idempotency_key: str) -> RequestedRun:
    """The run of this key: made now in the caller's transaction, or as it is. `given` becomes its input.

    Raises `KeyReused`, `TypeError` for an input that JSON does not have, and what the database raises.
    """
    actor, waits = _ACTORS[kind]
    asked = {"kind": kind, "customer": customer, "input": dict(given)}
    digest(asked)  # what has no digest has no JSON; the database would say so less clearly
    new = insert(AgentRun).values(**asked, status=waits, idempotency_key=idempotency_key)
    once = new.on_conflict_do_nothing(index_elements=[AgentRun.idempotency_key]).returning(AgentRun.id)
    run_id = s.scalar(once)
    if run_id is not None:
        cast("FleetActor[[int], None]", process_broker().get_actor(actor)).send_on_commit(s, run_id)
        return RequestedRun(run_id, waits, None, None, new=True)
    return _existing(s, idempotency_key, asked)


def _existing(s: Session, key: str, asked: dict[str, Any]) -> RequestedRun:
    """The run of a key that is taken; both inputs as the database reads them, which may write a number otherwise."""
    mine = literal(asked["input"], JSONB)
    found = select(AgentRun, mine).where(AgentRun.idempotency_key == key)
    run, read = s.execute(found, execution_options={"populate_existing": True}).one()
    wanted = digest(asked | {"input": read})
    there = digest({"kind": run.kind, "customer": run.customer, "input": run.input})
    if wanted != there:
        raise KeyReused(key, run, asked=wanted, found=there)
    return RequestedRun(run.id, RunStatus(run.status), run.outcome, run.result, new=False)
