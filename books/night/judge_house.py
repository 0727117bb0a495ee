"""Judges what is left: messages in queues, dead letters, rows that say running, processes that died of themselves."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import select

from books.models import AgentRun, Attachment, BankAccount, ImportJob, OutsideEffect, UploadBatch
from books.night.logs import count_events, events
from books.night.plan import Plan
from books.night.report import Line, judged, said
from fleet import probe
from fleet.app import App, janitors
from fleet.broker import FleetBroker
from fleet.storage import session
from fleet.storage.leases import RUNNING

SECTION = "house"
MODELS = (BankAccount, Attachment, AgentRun, ImportJob, UploadBatch, OutsideEffect)
"""Whose rows say running while somebody works on them."""


def judge(app: App, plan: Plan, broker: FleetBroker, killed: set[int], died: dict[str, int]) -> Iterator[Line]:
    """Lines on queues, rows and processes; `killed` are the night's own. Call it when the fleet has ended."""
    readings = probe.read(broker, [queue for lane in app.lanes for queue in lane.queues])
    left = [f"{r.queue} {r.ready} waiting, {r.delayed} delayed, {r.in_flight} held" for r in readings if r.left]
    yield judged(SECTION, "messages left anywhere", 0, sum(r.left for r in readings), left)
    dead = [f"{r.queue} {r.dead}" for r in readings if r.dead]
    yield judged(SECTION, "dead letters", 0, sum(r.dead for r in readings), dead)
    stuck = list(running_rows())
    yield judged(SECTION, "rows that still say running", 0, len(stuck), stuck)
    deaths = [
        f"{e['lane']} pid {e['pid']} {e['cause']}" for e in events(plan.folder, "worker_died") if e["pid"] not in killed
    ]
    yield judged(SECTION, "workers that died without being killed by the night", 0, len(deaths), deaths)
    ended = [f"{name} ({code})" for name, code in died.items()]
    yield judged(SECTION, "supervisors and beats that ended by themselves", 0, len(ended), ended)
    yield from _janitors(app, plan)
    yield said(SECTION, "messages that expired, of all", count_events(plan.folder, "message_expired"))
    yield said(
        SECTION,
        "jobs tried again",
        sum(count_events(plan.folder, f"job_{how}") for how in ("retries", "retries_later", "awaits_postgresql")),
    )


def _janitors(app: App, plan: Plan) -> Iterator[Line]:
    """Each ran, at the latest after the night; each pass came to its end, and the last one failed nowhere."""
    passes = {janitor: list(events(plan.folder, janitor)) for janitor in janitors(app)}
    wrong = [f"{janitor} never ran" for janitor, lines in passes.items() if not lines]
    for janitor, lines in passes.items():
        wrong += [f"{janitor}: {line['error']}" for line in lines if "error" in line]
        wrong += [f"{janitor}: {line['failed']} rows, last of all" for line in lines[-1:] if line["failed"]]
    ran = sum(map(len, passes.values()))
    yield judged(SECTION, "janitors' passes that broke off or failed at the last", 0, f"{len(wrong)} of {ran}", wrong)
    recovered = {janitor: sum(line["recovered"] for line in lines) for janitor, lines in passes.items()}
    yield said(SECTION, "rows that janitors recovered", ", ".join(f"{name} {n}" for name, n in recovered.items()))


def running_rows() -> Iterator[str]:
    """Every row that says running, by name."""
    with session() as s:
        for model in MODELS:
            yield from (f"{model.__name__} {row}" for row in s.scalars(select(model.id).where(model.status == RUNNING)))
