"""The agent: prepares a proposal that a person then approves, and checks what was approved before it is handed in.

A run is a loop of model turns and tool calls over the books. Each is a step of the journal: a run that comes again
reads the stored steps and goes on behind them.

Not guaranteed: that a proposal is right; a person approves it. On failure: a busy model hands the run back and the
message is tried again; a deadline leaves how many steps were taken; a run that comes to no answer is `failed`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from books import agent_tools, clients
from books.agent_journal import Journal
from books.leasing import lost, take
from books.models import AgentRun, RunStatus
from fleet.logs import get_logger
from fleet.storage import session

log = get_logger(__name__)

MOST_TURNS = 8  # a preparation needs three or four; one that goes on is going round in circles

_PREPARE = (
    "You prepare bookkeeping work for a person to approve. Look up what you need with the tools, then answer with the "
    "proposal in a few sentences. You change nothing yourself."
)
_CHECK = (
    "You check work that a person approved, before it is handed in. Answer STOP and the reason if it contradicts "
    "itself; answer OK otherwise."
)

Message = dict[str, Any]

run_lost = partial(lost, AgentRun, failed=RunStatus.FAILED)
"""Ends the run of a message whose job was cut off."""


def prepare(run_id: int, token: str) -> None:
    """Take a queued run to `prepared`; does nothing if another message holds it or it has ended.

    Raises what the model client raises; `LeaseLost`; `DeadlineExceeded`.
    """
    hold = take(AgentRun, run_id, message=token, claimable=(RunStatus.QUEUED,))
    if hold is None:
        return
    journal = Journal(hold)
    with hold.to_the_end(back_to=RunStatus.QUEUED, failed=RunStatus.FAILED):
        answer = _converse(journal, hold.row)
        if answer is None:
            hold.finish(RunStatus.FAILED, f"came to no answer in {MOST_TURNS} turns; its steps say what it asked")
        else:
            hold.finish(RunStatus.PREPARED, f"prepared in {journal.number} steps", result={"proposal": answer})
    log.info("run_prepared", run=run_id, steps=journal.number, taken=journal.taken)


def _converse(journal: Journal, run: AgentRun) -> str | None:
    """Model turns and tool calls until there is an answer; None if there is none after `MOST_TURNS`."""
    messages: list[Message] = [
        {"role": "system", "content": _PREPARE},
        {"role": "user", "content": json.dumps(run.input, ensure_ascii=False)},
    ]
    for _ in range(MOST_TURNS):
        turn = _ask(journal, run, messages, _offered())
        messages.append(turn)
        calls = turn.get("tool_calls") or []
        if not calls:
            return str(turn["content"])
        messages += [_call(journal, run, call) for call in calls]
    return None


def _ask(journal: Journal, run: AgentRun, messages: list[Message], tools: list[dict[str, Any]]) -> Message:
    def ask(number: str) -> dict[str, Any]:
        with clients.limited(clients.MODEL):
            turn = clients.model().step(messages, tools, run=f"agent_run:{run.id}", step=number)
        used = {"prompt_tokens": turn.usage.prompt_tokens, "completion_tokens": turn.usage.completion_tokens}
        return {"message": turn.message(), "usage": used}

    asked = {"messages": messages, "tools": tools}
    given = {"messages": len(messages)}
    message: Message = journal.step("model", "turn", asked, given, ask, model=clients.model_name())["message"]
    return message


def _call(journal: Journal, run: AgentRun, call: dict[str, Any]) -> Message:
    name = call["function"]["name"]

    def look_up(_: str) -> dict[str, Any]:
        with session() as s:
            return agent_tools.call(s, name, run.customer)

    given = {"arguments": call["function"]["arguments"]}
    found = journal.step("tool", name, given | {"customer": run.customer}, given, look_up)
    # A stored answer comes back with its keys in JSONB's order, which would make another question of the next turn.
    content = json.dumps(found, ensure_ascii=False, sort_keys=True)
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


def _offered() -> list[dict[str, Any]]:
    """The tools in the API's shape; none takes an argument, the run's customer is given."""
    none = {"type": "object", "properties": {}, "additionalProperties": False}
    return [
        {"type": "function", "function": {"name": name, "description": tool.__doc__ or name, "parameters": none}}
        for name, tool in agent_tools.TOOLS.items()
    ]


def check_approved(run_id: int, token: str, passed: Callable[[Session, AgentRun], object]) -> None:
    """Check an approved run with the model once more; one that passes is `submitting`, and `passed` writes down what
    is to be handed in, in the same transaction. Does nothing if that was done.

    Raises what the model client raises; `LeaseLost`; `DeadlineExceeded`.
    """
    hold = take(AgentRun, run_id, message=token, claimable=(RunStatus.APPROVED,))
    if hold is None:
        return
    journal = Journal(hold)
    with hold.to_the_end(back_to=RunStatus.APPROVED, failed=RunStatus.FAILED):
        messages: list[Message] = [
            {"role": "system", "content": _CHECK},
            {"role": "user", "content": json.dumps(hold.row.input, ensure_ascii=False)},
        ]
        said = str(_ask(journal, hold.row, messages, [])["content"])
        if said.lstrip().upper().startswith("STOP"):
            # The model's words may name anybody; an outcome is shown on the engine's pages.
            hold.finish(RunStatus.FAILED, "not handed in; the check said STOP, its result why", result={"check": said})
            return
        with session() as s:
            hold.finish(RunStatus.SUBMITTING, "checked; being handed in", s, result={"check": said})
            passed(s, hold.row)
    log.info("run_checked", run=run_id, taken=journal.taken)
