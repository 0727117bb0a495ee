"""Dead letters: counted by queue, filtered and paged, one read whole, and what an act would touch before it is done."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from fleet import wire
from fleet.broker import keys
from fleet.clock import clock
from fleet.console import letters
from fleet.console.dead_acts import DOES
from fleet.console.desk import Desk
from fleet.console.rendering import Page

_SAMPLE = 20


def build_list(desk: Desk, request: Request) -> dict[str, Any]:
    asked = letters.wanted(desk, request.query_params)
    with desk.broker.client.pipeline(transaction=False) as pipe:
        for queue in desk.queues:
            pipe.zcard(keys.dead(desk.broker.namespace, queue))
        counts = dict(zip(desk.queues, pipe.execute(), strict=True))
    place = request.query_params.get("at", "")
    found = letters.page(desk, asked, place)
    return {
        "asked": asked.given,
        "at": place,
        "act_at": letters.begins(asked, place),
        "counts": counts,
        "found": found,
        "rows": letters.listed(desk, found.letters),
        "total": letters.total(desk, asked),
        "reads_bodies": asked.which.reads_bodies,
        "looked_at": letters.LOOKED_AT,
        "actors": sorted(desk.app.actors),
    }


def build_letter(desk: Desk, request: Request) -> dict[str, Any]:
    queue, id = request.path_params["queue"], letters.id_of(request.path_params["id"])
    letter = letters.one(desk, queue, id)
    if letter is None:
        raise HTTPException(404, f"This dead letter of {queue} is gone: queued again, discarded, or kept long enough.")
    told, shown = letter.message, letters.shown(desk, letter)
    trace = letter.details.get("traceback") or (told.options.get("traceback") if told else None) or ""
    return {
        "letter": letter,
        "arguments": shown.arguments,
        "known": shown.known,
        "exception": letters.exception_of(letter, shown.known),
        "trace": str(trace),
        "lane": desk.lane_name(queue),
        "died": wire.to_ms(letter.died),
        "title": "Dead letter",
    }


def build_act(desk: Desk, request: Request) -> dict[str, Any]:
    what = request.query_params.get("do", "requeue")
    if what not in DOES:
        raise HTTPException(404, f"There is {', '.join(DOES)}.")
    asked, shown_at = letters.wanted(desk, request.query_params), clock.real_now()
    place = letters.begins(asked, request.query_params.get("at", ""))
    touched = letters.chosen(desk, asked, shown_at, place)
    return {
        "what": what,
        "does": DOES[what],
        "asked": asked.given,
        "at": place,
        "count": len(touched.letters),
        "most": letters.MOST,
        "next": touched.next,
        "reads_bodies": asked.which.reads_bodies,
        "looked_at": letters.LOOKED_AT,
        "sample": letters.listed(desk, touched.letters[:_SAMPLE]),
        "shown_at": wire.to_ms(shown_at),
        "title": f"{what.capitalize()} dead letters",
    }


PAGES = [
    Page("/dead", "Dead letters", "dead.html", build_list),
    Page("/dead/act", "Act on dead letters", "dead_act.html", build_act, nav=False),
    Page("/dead/{queue}/{id}", "Dead letter", "letter.html", build_letter, nav=False),
]
