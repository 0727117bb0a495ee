"""A message: where it stands, behind how many, who has it, and what happens next."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from fleet import entry_runs, probe, wire
from fleet.broker.reaper import LOST_AFTER
from fleet.by_hand import Pause
from fleet.clock import clock
from fleet.explain import places
from fleet.explain.model import Asked, plain, running
from fleet.explain.places import Place
from fleet.views import fine_span, span

_DEAD = {
    "deadline": "its soft budget ended: see whether it fits with `fleet jobs --advise`",
    "failed": "it failed for good: mend the cause first",
    "hook": "a middleware broke over it three times: that is a fault of the code around the job",
    "unknown actor": "no worker knows its actor: was it renamed, or is a deploy not through?",
    "undecodable": "nobody can read its bytes: look who sends them",
}


def lines(asked: Asked, place: Place) -> Iterator[str]:
    """What is to be said of a message at a place."""
    yield _who(asked, place)
    yield from {
        "waiting": _waiting,
        "suspect": _suspect,
        "delayed": _delayed,
        "stock delayed": _stock_delayed,
        "held": _held,
        "dead": _dead,
    }[place.stands](asked, place)
    if place.stands != "dead":
        yield from _expiry(asked, place)
    if place.losses and place.stands != "suspect":
        yield f"{place.losses} workers were lost with it before; a third makes it a suspect, which runs alone."


def where(asked: Asked, place: Place) -> str:
    """The same in part of a sentence, for what waits for a message."""
    if place.stands == "waiting":
        return f"waits {_behind(place)} in {place.queue}"
    if place.stands == "held":
        job = _job(asked, place)
        return f"runs {job}" if job else "is held by a worker that has not begun it"
    if place.stands == "delayed" and place.due is not None:
        return f"is delayed until {asked.ahead(clock.to_night(place.due))}"
    return "died" if place.stands == "dead" else f"stands as {place.stands}"


def _who(asked: Asked, place: Place) -> str:
    message, lane = place.message, asked.app.lane_of(place.queue)
    of = f"queue {place.queue}, {f'lane {lane.name}' if lane else 'served by no lane of this application'}"
    if message is None:
        return f"A message of {of}, whose bytes nobody can read"
    sent = ""
    at = wire.instant(message.message_timestamp)
    if at is not None:
        sent = f", sent {span((clock.real_now() - at) * clock.rate)} ago"
    origin = message.options.get(wire.ORIGIN) or message.options.get(wire.ENTRY)
    return f"{plain(message.actor_name)} of {of}{sent}" + (f", for {plain(origin)}" if origin else "")


def _behind(place: Place) -> str:
    if place.ahead is None:
        return f"beyond the first {places.LOOKED_AT:,} and before the last {places.LOOKED_AT:,} of {place.length:,}"
    return f"behind {place.ahead:,} of {place.length:,}" if place.ahead else f"first of {place.length:,}"


def _waiting(asked: Asked, place: Place) -> Iterator[str]:
    yield f"It waits {_behind(place)}; {asked.serving(place.queue)}."
    yield from _start(asked, place)


def _start(asked: Asked, place: Place) -> Iterator[str]:
    """When it should start, by how many of its queue end a minute."""
    [reading] = probe.read(asked.broker, [place.queue])
    if not reading.rate_out:
        yield f"Nothing of {place.queue} ended in the last minutes, so nobody can say when it starts."
        return
    ahead = place.ahead if place.ahead is not None else place.length
    starts = asked.now + timedelta(minutes=ahead / reading.rate_out)
    least = "" if place.ahead is not None else "at the latest "
    yield f"About {reading.rate_out:,.3g} end a minute: it should start {least}at {asked.ahead(starts)}."
    expires = _expires(place)
    if expires is not None and starts > expires:
        yield "At this pace it EXPIRES before it starts."


def _expires(place: Place) -> datetime | None:
    return wire.instant(place.message.options.get(wire.EXPIRES_AT)) if place.message else None


def _expiry(asked: Asked, place: Place) -> Iterator[str]:
    expires = _expires(place)
    if expires is None or (place.stands == "held" and _job(asked, place)):
        return
    if expires <= asked.now:
        yield f"It expired {span(asked.now - expires)} ago: whoever takes it up drops it, as `message_expired`."
    else:
        yield f"If it has not started by {asked.ahead(expires)} it is dropped, and is no dead letter."


def _delayed(asked: Asked, place: Place) -> Iterator[str]:
    assert place.due is not None
    until = asked.ahead(clock.to_night(place.due))
    retries = wire.count(place.message.options.get("retries")) if place.message else 0
    if retries and place.message is not None:
        last = str(place.message.options.get("traceback") or "").strip().rpartition("\n")[2].partition(":")[0]
        yield f"Its try {retries} failed{f' with {plain(last)}' if last else ''}; the next begins at {until}."
    else:
        yield f"It is delayed until {until}; then it waits as any other."
    yield f"{asked.serving(place.queue)}."


def _stock_delayed(asked: Asked, place: Place) -> Iterator[str]:
    yield f"It stands in stock Dramatiq's delay queue; the next fetch moves it over. {asked.serving(place.queue)}."


def _suspect(asked: Asked, place: Place) -> Iterator[str]:
    yield (
        f"It is a suspect: {place.losses or 'some'} processes died with it. It is to run alone, in a process of its "
        f"own, behind {place.ahead or 0:,} other suspects."
    )
    yield "If it kills that process too, it becomes a dead letter with the reason; else it is cleared."
    yield f"{asked.serving(place.queue)}."


def _job(asked: Asked, place: Place) -> str | None:
    """Where the message runs, if a board shows it."""
    ids = {place.id, *([str(place.message.message_id)] if place.message else [])}
    for job, report in asked.jobs():
        if job.message_id in ids and job.queue in ("", place.queue):
            return running(job, report)
    return None


def _held(asked: Asked, place: Place) -> Iterator[str]:
    if job := _job(asked, place):
        yield f"It runs {job}."
        yield "At its soft budget it is told to end and its row says how far it came; at the hard one it is taken away."
        return
    if place.worker is None:
        yield "A worker fetched it that is on no record any more, or a stock one: a reaper returns it to its queue."
        return
    report = next((one for one in asked.reports if one.worker_id == place.worker), None)
    where = f"on {report.host}, pid {report.pid}" if report else f"{place.worker[:8]}, which reports nothing"
    yield f"A worker ({where}) holds it and has not begun it, or just ended it."
    if report is None:
        yield f"If that worker is dead, its messages return to the front within {span(LOST_AFTER)}."


def _dead(asked: Asked, place: Place) -> Iterator[str]:
    assert place.died is not None
    details = place.details or {}
    reason = plain(details.get("reason") or "failed")
    kind = str(details.get("exception") or "").partition("(")[0]  # its words may be personal
    attempts = details.get("attempts")
    yield (
        f"It is a DEAD LETTER since {asked.told(clock.to_night(place.died))}: {reason}"
        f"{f', {plain(kind)}' if kind not in ('', '-') else ''}{f', after {attempts} tries' if attempts else ''}."
    )
    yield f"Nothing tries it again by itself; {_DEAD.get(reason, 'look at why it died')}."
    yield f"Look: `fleet dead show {plain(place.id)}`."
    actor = plain(place.message.actor_name) if place.message else None
    if actor is not None:
        yield f"Then `fleet dead requeue --queue {place.queue} --actor {actor}` shows what would run again."


def gone(asked: Asked, wanted: str, queues: int) -> Iterator[str]:
    """What is to be said of a message that stands nowhere."""
    yield (
        f"No message {plain(wanted)} waits, runs, is delayed or died in {queues} queues: it is done, or was dropped or "
        "discarded, or was never sent."
    )
    entry, sign, _ = wanted.rpartition("@")
    if sign and entry in {one.name for one in asked.app.schedule}:
        runs = [run for run in entry_runs.read(asked.broker, entry) if run.message_id == wanted]
        for run in entry_runs.settled(runs, asked.now)[-3:]:
            took = f", after {fine_span(run.took)}" if run.took is not None else ""
            yield f"Its try {run.attempt} began {asked.told(run.started)}: {run.outcome or 'still runs'}{took}."
        if not runs:
            yield f"No run of it is on record; see `fleet schedule {entry} --ledger`."
        return
    yield (
        "By the id that `send` returned only the first and latest few hundred of a queue are searched; the "
        "id in Redis (`redis_message_id`) finds any."
    )


def pause_told(asked: Asked, pause: Pause) -> str:
    """Who paused an entry, and since when."""
    return f"by {plain(pause.by)} since {asked.told(pause.at)}: {plain(pause.because)}"
