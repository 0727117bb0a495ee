"""Judges what is left: messages in queues, dead letters, rows that say running, processes that died of themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sqlalchemy import select

from books.models import AgentRun, Attachment, BankAccount, ImportJob, OutsideEffect
from books.night.logs import count_events, events
from books.night.plan import Plan
from books.night.report import Line, judged, said
from fleet import probe
from fleet.app import App, janitors
from fleet.broker import FleetBroker
from fleet.storage import session
from fleet.storage.leases import RUNNING

SECTION = "house"


def judge(app: App, plan: Plan, broker: FleetBroker, killed: set[int], died: dict[str, int]) -> Iterator[Line]:
    """Lines on queues, rows and processes; `killed` are the night's own. Call it when the fleet has ended."""
    readings = probe.read(broker, [queue for lane in app.lanes for queue in lane.queues])
    left = [f"{r.queue} {r.ready} waiting, {r.delayed} delayed, {r.in_flight} held" for r in readings if r.left]
    yield judged(SECTION, "messages left anywhere", 0, sum(r.left for r in readings), left)
    dead = [f"{r.queue} {r.dead}" for r in readings if r.dead]
    yield judged(SECTION, "dead letters", 0, sum(r.dead for r in readings), dead)
    stuck = list(_running_rows())
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
        count_events(plan.folder, "job_retries") + count_events(plan.folder, "job_retries_later"),
    )


def _janitors(app: App, plan: Plan) -> Iterator[Line]:
    """Each ran, at the latest after the night, and each pass's line says that it came to its end and failed nowhere."""
    passes = [line for janitor in janitors(app) for line in events(plan.folder, janitor)]
    ran = {line["janitor"] for line in passes}
    wrong = [
        f"{line['janitor']}: {line.get('error') or line['failed']}" for line in passes if line["verdict"] == "failed"
    ]
    wrong += [f"{janitor} never ran" for janitor in janitors(app) if janitor not in ran]
    yield judged(SECTION, "janitors' passes that failed", 0, f"{len(wrong)} of {len(passes)}", wrong)
    recovered = Counter(dict.fromkeys(ran, 0))
    for line in passes:
        recovered[line["janitor"]] += line["recovered"]
    yield said(SECTION, "rows that janitors recovered", ", ".join(f"{name} {n}" for name, n in recovered.items()))


def _running_rows() -> Iterator[str]:
    with session() as s:
        for model in (BankAccount, Attachment, AgentRun, ImportJob, OutsideEffect):
            yield from (f"{model.__name__} {row}" for row in s.scalars(select(model.id).where(model.status == RUNNING)))
