"""Pages from templates: everything is escaped, no template holds a style or a script, and live parts hold no forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from fleet.clock import clock
from fleet.console.desk import Desk
from fleet.console.letters import address
from fleet.console.sessions import Visitor
from fleet.scrubbing import scrub
from fleet.views import fine_span, span

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
Build = Callable[[Desk, Request], Mapping[str, Any]]


@dataclass(frozen=True)
class Page:
    """A page: its address, its name in the navigation (none: it is not there), its template and what fills it.

    A `live` page's block `live` is sent anew while it is open; there may be no form in it.
    """

    path: str
    title: str
    template: str
    build: Build
    nav: bool = True
    live: bool = False


class Renderer:
    """The templates, and what each of them may use."""

    def __init__(self, desk: Desk, pages: list[Page]) -> None:
        self._desk, self._nav = desk, [page for page in pages if page.nav]
        self._environment = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {"span": span, "fine": _fine, "ago": _ago, "clock": _clock, "when": _when}
        self._environment.filters |= {"scrub": scrub, "address": address, "brief": _brief, "rate": _rate}
        self._environment.globals |= {"link": link, "runbook": desk.runbook}
        self._environment.globals["ui"] = self._environment.get_template("ui.html").module

    def page(self, page: Page, request: Request, *, status: int = 200, **more: Any) -> HTMLResponse:
        """The whole page."""
        values = {**page.build(self._desk, request), **more}
        return self.made(page.template, request, page, status=status, **values)

    def fragment(self, page: Page, request: Request) -> str:
        """What is live of a page."""
        template = self._environment.get_template(page.template)
        values = {**self._values(request, page), **page.build(self._desk, request)}
        return "".join(template.blocks["live"](template.new_context(values)))

    def made(
        self, template: str, request: Request, page: Page | None = None, *, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """A page from a template and values, whether it is one of the pages or not."""
        text = self._environment.get_template(template).render(self._values(request, page) | values)
        return HTMLResponse(text, status)

    def _values(self, request: Request, page: Page | None) -> dict[str, Any]:
        visitor: Visitor | None = getattr(request.state, "visitor", None)
        query = request.url.query
        return {
            "nav": self._nav,
            "page": page,
            "title": page.title if page else "",
            "here": request.url.path + (f"?{query}" if query else ""),
            "visitor": visitor,
            "login": self._desk.sessions.login,
            "form_token": self._desk.sessions.form_token(visitor) if visitor else "",
            "now": clock.now(),
            "rate": clock.rate,
            "namespace": self._desk.broker.namespace,
        }


def link(path: str, **query: object) -> str:
    """An address with those parts of a query that are given."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def _rate(figure: float | None) -> str:
    """A figure a minute; below ten with a place behind the point."""
    return "-" if figure is None else f"{figure:,.0f}" if figure >= 10 or not figure else f"{figure:.1f}"


def _brief(id: str) -> str:
    """Enough of an id to tell it from its neighbours; an entry's messages keep their entry."""
    return id if len(id) <= 24 or "@" in id else f"{id[:13]}…"


def _fine(duration: timedelta | None) -> str:
    return "-" if duration is None else fine_span(duration)


def _ago(instant: datetime | None) -> str:
    """How long ago something of real time was."""
    return "-" if instant is None else f"{span(max(timedelta(0), clock.real_now() - instant))} ago"


def _clock(instant: datetime | None) -> str:
    return "-" if instant is None else f"{instant:%H:%M:%S}"


def _when(instant: datetime | None) -> str:
    return "-" if instant is None else f"{instant:%Y-%m-%d %H:%M:%S}"
