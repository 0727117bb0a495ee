"""A night made up for tests of the timeline, and for the drawing in the docs: `python -m tests.fleet.nights FILE`."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from fleet.allowance import Decision
from fleet.by_hand import Pause
from fleet.declarations import Elastic, Entry
from fleet.entry_runs import Run
from fleet.ledger import LedgerLine
from fleet.overlaps import Expected
from fleet.timeline import Known, Load, Night, Recorded, Timeline, svg, timeline

BERLIN = ZoneInfo("Europe/Berlin")
DAY = date(2026, 3, 2)
NAME = "nightly_audit"
NIGHT = Night.of(DAY, BERLIN)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def decided(at: datetime, places: int, reason: Any, text: str) -> Decision:
    return Decision(at, "e", places, reason, text, 1, {})


def said(until: datetime, *changes: Decision) -> list[Decision]:
    """Decisions as the balancer keeps them: each change, and the same again every ten minutes."""
    found = []
    for number, change in enumerate(changes):
        following = changes[number + 1].at if number + 1 < len(changes) else until
        times = range(int((following - change.at - MINUTE / 60) / (10 * MINUTE)) + 1)
        found += [replace(change, at=change.at + 10 * MINUTE * time) for time in times]
    return found


def at(wall: str, zone: ZoneInfo = BERLIN, day: date = DAY) -> datetime:
    """A time of day of the night that begins on a day."""
    moment = time.fromisoformat(wall)
    on = day if moment.hour >= 12 else day + timedelta(days=1)
    return datetime.combine(on, moment, zone).astimezone(UTC)


def entry(name: str, cron: str, **more: Any) -> Entry:
    given: dict[str, Any] = {
        "expires": 2 * HOUR,
        "because": "banks have closed their day",
        "tz": "Europe/Berlin",
        **more,
    }
    return Entry(name, cron=cron, **given)


def elastic(made: Entry, opens: time, deadline: time, cap: int) -> Entry:
    """The entry as one with a window; its slot is in the middle of the night."""
    window = Elastic((opens, deadline), deadline, time(4), "books:backlog", 100, cap, "the night has room for it")
    return replace(made, elastic=window)


def known(made: Entry, lane: str, minutes: float = 1, count: int = 7, *, on_cpu: bool = False) -> Known:
    return Known(made, lane, on_cpu, Expected(minutes * MINUTE, count))


def fired(name: str, wall: str, verdict: Any = "fired", count: int = 1, until: str | None = None) -> LedgerLine:
    first = at(wall)
    return LedgerLine(name, verdict, first, at(until) if until else first, count, first)


def ran(name: str, slot: str | None, began: str, minutes: float | None, how: str = "done", attempt: int = 1) -> Run:
    started = at(began)
    of = at(slot) if slot else None
    ended = None if minutes is None else started + minutes * MINUTE
    outcome = None if minutes is None else how
    return Run(
        name, f"{name}-{began}-{attempt}", f"{name}@{slot}", of, attempt, "w", started, started + HOUR, ended, outcome
    )


def of_one_entry(
    now: str | None, *lines: LedgerLine, runs: Any = (), cron: str = "10 3 * * *", **more: Any
) -> Timeline:
    """A night with one entry in one lane."""
    recorded = Recorded(ledger={NAME: lines}, runs={NAME: list(runs)}, **more)
    one = known(entry(NAME, cron), "lane", 10)
    return timeline([one], recorded, NIGHT, at(now) if now else None)


def shown(found: Timeline) -> list[tuple[str, str, str]]:
    """(kind or outcome, begins, ends) of the segments of the only track."""
    told = found.night.told
    tracks = [track for row in found.rows for track in row.tracks]
    return [(one.outcome or one.kind, told(one.begins), told(one.ends)) for track in tracks for one in track.segments]


def sample() -> Timeline:
    """A night at 03:42 in which the banks were slow, an audit ran into the balances, and a sweep is held."""
    sweep = elastic(entry("categorize_uncategorized_transactions", "0 4 * * *"), time(0, 30), time(6, 15), 4)
    evals = elastic(entry("run_evals", "10 5 * * *"), time(2, 0), time(7, 0), 6)
    entries = [
        known(entry("update_all_transactions", "0 1,17 * * *"), "transaction_sync", 52),
        known(entry("update_accounts", "20 1 * * *"), "transaction_sync", 24),
        known(entry("sync_all_active_integrations", "0 2 * * *"), "transaction_sync", 9),
        known(entry("charge_subscriptions", "30 5 * * *"), "transaction_sync", 12),
        known(sweep, "transaction_postprocess", 9, on_cpu=True),
        known(evals, "agent_batch", 20, on_cpu=True),
        known(entry("promote_findings", "0 5 * * *"), "agent_batch", 2, on_cpu=True),
        known(entry("nightly_audit", "10 3 * * *"), "housekeeping", 21),
        known(entry("send_due_invoices", "0 7 * * *"), "housekeeping", 6),
        known(entry("mark_overdue_invoices", "0 6 * * *"), "housekeeping", 1),
        known(entry("check_queue_health", "* * * * *", expires=MINUTE), "housekeeping", 0.05, count=900),
        known(entry("recover_stuck_syncs", "*/10 * * * *", expires=10 * MINUTE), "housekeeping", 0.1, count=90),
    ]
    slots = [fired("check_queue_health", f"{hour:02}:{minute:02}") for hour in range(4) for minute in range(0, 60, 2)]
    slots = [line for line in slots if line.first < at("03:42")]
    health = [
        ran(
            "check_queue_health",
            f"{line.first.astimezone(BERLIN):%H:%M}",
            f"{line.first.astimezone(BERLIN):%H:%M}",
            0.05,
        )
        for line in slots
    ]
    ledger = {
        "update_all_transactions": [fired("u", "17:00"), fired("u", "01:00")],
        "update_accounts": [fired("a", "01:20")],
        "nightly_audit": [fired("n", "03:10")],
        "sync_all_active_integrations": [fired("s", "02:00")],
        "check_queue_health": slots,
        "recover_stuck_syncs": [fired("r", "01:30", "expired", 3, "01:50")],
    }
    runs = {
        "update_all_transactions": [ran("u", "17:00", "17:00:02", 31), ran("u", "01:00", "01:00:01", 58)],
        "update_accounts": [ran("a", "01:20", "01:31", 9, "retried"), ran("a", "01:20", "01:44", 26, attempt=2)],
        "nightly_audit": [ran("n", "03:10", "03:16", None)],
        "sync_all_active_integrations": [ran("s", "02:00", "02:03", 40, "deadline")],
        "categorize_uncategorized_transactions": [
            replace(ran("c", None, f"{h:02}:{m:02}", 3), chain=0)
            for h in (0, 1, 2)
            for m in range(32 if h == 0 else 0, 60, 4)
            if (h, m) < (1, 14) or (h, m) > (1, 36)
        ],
        "check_queue_health": health,
    }
    decisions = {
        "categorize_uncategorized_transactions": said(
            at("03:42"),
            decided(at("00:30"), 2, "calm", "nobody waits; the backlog is 11,400 rows"),
            decided(at("00:52"), 4, "calm", "nobody waits"),
            decided(at("01:14"), 0, "hot", "realtime waited 1.8 s"),
            decided(at("01:36"), 1, "calm", "three calm minutes"),
            decided(at("02:05"), 2, "calm", "three calm minutes more"),
            decided(at("03:20"), 4, "floor", "needs 3.2 places to be done by 06:15"),
        ),
        "run_evals": said(
            at("03:42"),
            decided(at("02:00"), 0, "free", "people hold 9 of 10 places"),
            decided(at("03:00"), 2, "calm", "6 places are free"),
        ),
    }
    wave = [0, 2, 3, 60, 110, 128, 128, 120, 90, 40, 12, 3, 1, 0, 0]
    loads = {"transaction_sync": [Load(at("00:30") + 12 * MINUTE * n, busy, busy * 20) for n, busy in enumerate(wave)]}
    pauses = {"send_due_invoices": Pause("maria", at("22:15"), "the mail host moves")}
    return timeline(entries, Recorded(ledger, runs, decisions, pauses, loads), NIGHT, at("03:42"))


def main() -> None:
    """Write the drawing that stands in the docs."""
    Path(sys.argv[1]).write_text(svg(sample(), width=960) + "\n")


if __name__ == "__main__":
    main()
