"""A console with a page more, that fails over what is personal: `python -m tests.console.breaking`, as `fleet`."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from fleet.cli import main
from fleet.console.desk import Desk
from fleet.console.pages import PAGES
from fleet.console.rendering import Page

PATH, IBAN, MAIL = "/breaks", "DE89370400440532013000", "erika.mustermann@example.org"


def _build(desk: Desk, request: Request) -> dict[str, Any]:
    raise ValueError(f"no account {IBAN} of {MAIL}")


if __name__ == "__main__":
    PAGES.append(Page(PATH, "Breaks", "audit.html", _build, nav=False))
    main()
