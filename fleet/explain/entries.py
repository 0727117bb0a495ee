"""An entry of the schedule: when it comes next, what became of its last slots, and what holds its work now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import takewhile

from fleet import by_hand, entry_runs, ledger
from fleet.allowance import Decision, allowance, decisions, holds, switched_off
from fleet.app import effective_budget
from fleet.broker import keys
from fleet.declarations import Entry
from fleet.explain import messages, places
from fleet.explain.model import Asked, plain
from fleet.slots import next_slot, offset
from fleet.views import fine_span, span
from fleet.window import window

_LINES, _RUNS = 5, 400


def lines(asked: Asked, entry: Entry) -> Iterator[str]:
    """What is to be said of an entry."""
    yield _who(asked, entry)
    pause = by_hand.paused(asked.broker.client, asked.broker.namespace, [entry.name]).get(entry.name)
    if pause is not None:
        chains = ", and none of its chains begins a chunk," if entry.elastic is not None else ""
        told = messages.pause_told(asked, pause)
        yield f"PAUSED {told}. Its slots end as paused{chains} until `fleet resume {entry.name}`."
    yield _next(asked, entry)
    if entry.elastic is not None:
        yield from _elastic(asked, entry, pause)
    yield from _verdicts(asked, entry)
    yield from _message_now(asked, entry)
    yield _last_run(asked, entry)


def _who(asked: Asked, entry: Entry) -> str:
    when = f"cron {entry.cron} ({entry.tz})" if entry.cron else f"every {span(entry.every)}"
    actor = asked.app.actors.get(entry.actor)
    lane = asked.app.lane_of(actor.queue_name) if actor is not None else None
    return f"{when}, lane {lane.name if lane else 'none'}: {entry.because}"


def _next(asked: Asked, entry: Entry) -> str:
    beats = [report for report in asked.reports if report.kind == "beat"]
    leading = next((f"the beat on {report.host} leads" for report in beats if report.leads), None)
    lead = leading or "NO beat leads, so no slot fires"
    slot = next_slot(entry, asked.now - offset(entry))
    if slot is None:
        return f"It has no slot to come; {lead}."
    due = slot + offset(entry)
    return f"Next slot {asked.ahead(due)}; it may start until {span(entry.expires)} after that; {lead}."


def _verdicts(asked: Asked, entry: Entry) -> Iterator[str]:
    found = ledger.read(asked.broker.client, asked.broker.namespace, entry.name, _LINES * 2)
    judged = [line for line in found if line.judges][-_LINES:]
    if not judged:
        yield "No slot of it has a verdict yet."
        return
    shown = (
        f"{asked.told(line.last)} {line.verdict}" + (f" ({line.count:,} slots)" if line.count > 1 else "")
        for line in reversed(judged)
    )
    yield f"Last verdicts, newest first: {'; '.join(shown)}."


def _message_now(asked: Asked, entry: Entry) -> Iterator[str]:
    """What the last message of it does, where it has not ended."""
    ns, client = asked.broker.namespace, asked.broker.client
    actor = asked.app.actors.get(entry.actor)
    with client.pipeline(transaction=False) as pipe:
        pipe.hget(keys.runs(ns), entry.name)
        pipe.hget(keys.runs_by_hand(ns), entry.name)
        sent: list[bytes | None] = pipe.execute()
    for id in filter(None, sent):
        name = id.decode(errors="surrogateescape")
        found = places.find(asked.broker, [actor.queue_name], name) if actor is not None else []
        for place in found[:1]:
            by_hand = "" if id == sent[0] else " that a person sent"
            yield f"Its message{by_hand} {messages.where(asked, place)}: `fleet explain {plain(name)}`."


def _last_run(asked: Asked, entry: Entry) -> str:
    runs = entry_runs.settled(entry_runs.read(asked.broker, entry.name, most=_RUNS), asked.now)
    if not runs:
        return "No run of it is on record."
    last, seen = runs[-1], entry_runs.durations(runs)
    actor = asked.app.actors.get(entry.actor)
    lane = asked.app.lane_of(actor.queue_name) if actor is not None else None
    budget = effective_budget(actor, lane) if actor is not None and lane is not None else None
    took = f" after {fine_span(last.took)}" if last.took is not None else ""
    what = "Last chunk" if last.chain is not None else "Last run"
    told = f"{what} began {asked.told(last.started)}: {last.outcome or 'it still runs'}{took}"
    if seen is not None:
        told += f"; p50 {fine_span(seen.p50)}, p95 {fine_span(seen.p95)} of {seen.count:,}"
    return told + (f"; soft budget {span(budget.soft)}." if budget is not None else ".")


def _elastic(asked: Asked, entry: Entry, pause: by_hand.Pause | None) -> Iterator[str]:
    assert entry.elastic is not None
    night, cap = window(entry, asked.now), entry.elastic.cap
    if off := switched_off(asked.broker):
        yield f"The balancer is OFF, by {plain(off.by)} since {asked.told(off.at)}: {plain(off.because)}."
    hold = holds(asked.broker, [entry.name]).get(entry.name)
    if hold is not None:
        yield f"HELD by {plain(hold.by)} until {asked.ahead(hold.until)}: {plain(hold.because)}."
    granted = allowance(asked.broker, entry, asked.now)
    deadline = f"deadline {asked.told(night.deadline)}"
    if pause is not None or hold is not None:
        yield f"Elastic: 0 of {cap} chains are allowed while it is {'paused' if pause else 'held'}; {deadline}."
    elif asked.now < night.opens:
        yield f"Elastic: its window opens at {asked.ahead(night.opens)}, {deadline}."
    elif granted.reason in ("paused", "held"):  # by a lease of the minute before
        yield f"Elastic: it begins again with the balancer's next minute; {deadline}."
    elif granted.fallback and granted.leased_until is None:
        yield (
            f"Elastic: nobody decides, so the cron slot stands: {granted.places} of {cap} chains from "
            f"{asked.told(night.slot)} to {asked.told(min(night.day, night.closes))}; {deadline}."
        )
    else:
        yield f"Elastic: {_decided(asked, entry, granted.places, granted.reason)}."


def _decided(asked: Asked, entry: Entry, places: int, reason: str) -> str:
    """What the balancer says of it, and since when it has been so."""
    assert entry.elastic is not None
    cap = entry.elastic.cap
    since, last = _since(decisions(asked.broker, entry.name, window(entry, asked.now).opens), places)
    if since is None or last is None:
        return f"{places} of {cap} chains are allowed ({reason}); no decision of it is on record"
    what, _, why = last.text.partition(": ")
    if not what.endswith(f" of {cap}"):
        what, why = f"{places} of {cap} allowed", last.text
    return plain(f"{what} since {asked.told(since)}: {why}", 400)


def _since(found: Sequence[Decision], places: int) -> tuple[datetime | None, Decision | None]:
    """Since when an allowance has been what it is, and the newest decision for it."""
    same = list(takewhile(lambda decision: decision.places == places, reversed(found)))
    return (same[-1].at, same[0]) if same else (None, None)
