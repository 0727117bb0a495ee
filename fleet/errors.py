"""Every error the engine raises, in one tree under `FleetError`.

Names say what was found. `DeadlineExceeded` stands apart: it is a `BaseException`, so that a job's own
`except Exception` cannot swallow the end of its budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from difflib import get_close_matches
from pathlib import Path


class FleetError(Exception):
    """The root of the tree."""


class BudgetInvalid(FleetError):
    """Raised when a budget is declared with a soft or hard limit, or a reason, that cannot stand."""


class DeclarationInvalid(FleetError):
    """Raised when a lane, an entry or a retry shape is declared with values that cannot stand."""


class CheckFailed(FleetError):
    """Raised when an application's declarations contradict one another; carries one line a finding."""

    def __init__(self, findings: Iterable[str]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(self.findings))


class RoomMissing(FleetError):
    """Raised when an application's root lacks a room that the engine cannot do without."""


class ShadowedRoom(FleetError):
    """Raised when an installed package stands where one of the application's rooms should be."""

    def __init__(self, room: str, *, found: Path | str, wanted: Path) -> None:
        super().__init__(
            f"The room {room!r} was found at {found}, but this application keeps it at {wanted}. "
            f"Uninstall or rename the package at {found}, or start from the application's root."
        )
        self.room = room


class NotDeclared(FleetError):
    """Raised when a lane, an actor or an entry is named that nobody declared."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        close = get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known) or 'none'}."
        super().__init__(f"There is no {kind} named {name!r}. {hint}")


class SettingsInvalid(FleetError):
    """Raised when the environment holds a setting that cannot be read, or lacks one that is needed."""


class ServerUnreachable(FleetError):
    """Raised when a configured Redis or PostgreSQL does not answer."""


class ServerRefused(FleetError):
    """Raised when a configured Redis refuses the user, the password, or a right that the engine needs."""


class ServerTooOld(FleetError):
    """Raised when a configured Redis or PostgreSQL answers, but lacks what the engine needs."""


class EmbeddedServerFailed(FleetError):
    """Raised when an embedded Valkey or PostgreSQL does not start; the message names its log."""


class MigrationBlocked(FleetError):
    """Raised when a migration's statement was refused its lock for as long as it is tried: somebody keeps it."""

    def __init__(
        self, statement: str, *, waits_for: str | None, held_by: str | None, tries: int, tried_for: timedelta
    ) -> None:
        who_holds_it = (
            "SELECT pid, usename, application_name, state, xact_start, query FROM pg_stat_activity "
            + (f"JOIN pg_locks USING (pid) WHERE relation = '{waits_for}'::regclass AND granted " if waits_for else "")
            + "ORDER BY xact_start"
        )
        super().__init__(
            f"A migration got no lock on {waits_for or 'what it needs'} in {tries} tries within {tried_for}, for "
            f"{statement!r}. It is held by {held_by or 'somebody who was not seen'}. Nothing of that revision is left, "
            f"those before it stay, and the release that runs goes on. Run `fleet migrate` again when the holder is "
            f"through (a dump, a long query, a transaction that nobody ends), or end it by pg_terminate_backend(pid). "
            f"Who holds it: {who_holds_it}"
        )


class ActorGone(FleetError):
    """Raised when a message is sent by name to an actor that workers published once, and none for long."""

    def __init__(self, actor: str, published: datetime, gone_after: timedelta) -> None:
        super().__init__(
            f"No worker knows {actor!r} any more: one last published it at {published:%Y-%m-%d %H:%M} UTC, more than "
            f"{gone_after.days} days ago. Was it renamed, or does no worker of this fleet run?"
        )


class ArgumentsInvalid(FleetError):
    """Raised when a message is sent by name with arguments that its actor does not take."""


class MessageTooLarge(FleetError):
    """Raised when a message is sent whose encoded form is larger than the broker takes."""

    def __init__(self, actor: str, size: int, most: int) -> None:
        super().__init__(
            f"A message to {actor!r} is {size:,} bytes; at most {most:,} are taken. "
            f"Store what is large and send its id."
        )


class MessageTooDeep(FleetError):
    """Raised when a message's arguments are nested deeper than the broker takes."""

    def __init__(self, actor: str, most: int) -> None:
        super().__init__(
            f"A message to {actor!r} has arguments nested deeper than {most} lists and mappings. "
            f"Store the tree and send its id."
        )


class ExpiryInvalid(FleetError):
    """Raised when a message is sent with an `expires_at` that names no instant, or a doubtful one."""

    def __init__(self, actor: str, found: object, why: str) -> None:
        super().__init__(
            f"A message to {actor!r} with expires_at={repr(found)[:80]}: {why}. Give an aware datetime, or whole "
            f"milliseconds since the epoch, both in night time; or None for a message that never expires."
        )


class EventLoopMissing(FleetError):
    """Raised when an async actor is called in a process without a running event loop."""


class AddressUnusable(FleetError):
    """Raised when the address for metrics and health cannot be listened on."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        super().__init__(
            f"Nothing can listen on {host!r}, port {port or 'any'}, for /metrics, /healthz and /readyz: "
            f"{error.strerror or error}. Look at FLEET_METRICS_HOST and FLEET_METRICS_PORT; without a port a free one "
            f"is taken, and several lanes on one host need that."
        )


class NotServedHere(FleetError):
    """Raised when a host that should serve a lane, or run a beat, has no process of it that reported lately."""


class RetryLater(FleetError):
    """Raised when a job cannot go on now and knows when it can; `after` is a night duration.

    With a `key` (a bank connection, a model) it is a rate limit: the key is parked for everybody, no attempt is used.
    """

    def __init__(self, message: str, after: timedelta, key: str | None = None) -> None:
        super().__init__(message)
        self.after = after
        self.key = key


class DeadlineExceeded(BaseException):
    """Raised when a job's soft budget is used up; not an `Exception`, so a job cannot swallow it by accident."""
