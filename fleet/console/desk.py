"""What the pages are made of: the loaded application, its broker, its database where there is one, and the runbook."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fleet.app import App, settings
from fleet.broker import FleetBroker
from fleet.console.runbook import Runbook
from fleet.console.sessions import Sessions
from fleet.console.tokens import Token

if TYPE_CHECKING:
    from sqlalchemy import Engine


@dataclass(frozen=True)
class Desk:
    """One console; `tokens` are empty where nobody has to log in."""

    app: App
    broker: FleetBroker
    sessions: Sessions
    tokens: tuple[Token, ...] = ()

    @property
    def queues(self) -> list[str]:
        """Every queue that a lane serves."""
        return [queue for lane in self.app.lanes for queue in lane.queues]

    def lane_name(self, queue: str) -> str:
        """The lane of a queue, `-` if none serves it."""
        lane = self.app.lane_of(queue)
        return lane.name if lane else "-"

    def engine(self) -> Engine | None:
        """The application's database; None where it keeps no records."""
        if not settings().database_url:
            return None
        from fleet.storage import database

        return database()

    @cached_property
    def runbook(self) -> Runbook:
        """What to do about what, read once."""
        return Runbook.of(self.app.root)
