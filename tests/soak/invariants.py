"""What must hold however a soak went, as lines of a night's report: red is broken.

The truth is elsewhere than in the code under test: a journal that jobs write to, the sandbox's own records, the ledger
beside PostgreSQL's `slots`. The night's judges are asked where they know the answer; what they say of a calm night only
(that each thing came to its good end) is not asked, since a fault may park a row for a person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from dramatiq import Message
from sqlalchemy import func, select, update

from books.models import BankAccount
from books.night import judge_bank, judge_elastic, judge_house, judge_slots
from books.night.logs import events, lines
from books.night.plan import Plan
from books.night.report import Line, judged, said
from books.night.world import World
from fleet import ledger, probe
from fleet.bounds import bound_of
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.ledger import LedgerLine
from fleet.slots import slots_between
from fleet.storage import session
from fleet.storage.leases import RUNNING
from tests.soak.house import TICK
from tests.soak.processes import Stage

_MODELS = judge_house.MODELS
_OUTAGES = timedelta(seconds=60)  # real: what PostgreSQL and Redis may be away in a janitor's way


@dataclass(frozen=True)
class Lasted(Plan):
    """The plan of a soak as the judges of slots want it: from the first verdict to the last."""

    since: datetime = field(kw_only=True)
    until: datetime = field(kw_only=True)

    @property
    def begins(self) -> datetime:
        return self.since

    @property
    def ends(self) -> datetime:
        return self.until


class Watch:
    """Looks while nights are played: what is capped or moves on cannot be judged at the end."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._ledger: dict[str, list[LedgerLine]] = {entry.name: [] for entry in stage.hosts.app.schedule}
        self.sent: dict[str, int] = {}
        """Of the messages that are tallied: id in Redis -> number. Those alone whose send returned."""
        self.beyond: set[str] = set()
        """Rows that said running longer than a janitor may take."""
        bound = bound_of(stage.hosts.app, stage.hosts.app.lanes[0], clock.now()).janitor
        self.bound = _OUTAGES + (clock.to_real(bound.gap) + bound.takes if bound else timedelta(0))

    def note(self, message: Message[Any], number: int) -> None:
        """Tally a message whose send returned."""
        self.sent[in_redis(message)] = number

    def look(self) -> None:
        """Rows whose lease lapsed so long ago that a janitor should have been there."""
        self.beyond |= beyond(self.bound)

    def read_ledger(self) -> None:
        """Take over what the ledger has got since the last time; call it more often than it forgets."""
        broker = self._stage.broker
        for entry, known in self._ledger.items():
            since = known[-1].at if known else None
            fresh = ledger.read(broker.client, broker.namespace, entry, since=since)
            at_the_edge = Counter(line for line in known if line.at == since)
            for line in fresh:
                if at_the_edge[line]:
                    at_the_edge[line] -= 1
                else:
                    known.append(line)

    @property
    def ledger(self) -> list[LedgerLine]:
        return sorted((line for known in self._ledger.values() for line in known), key=lambda line: line.at)


def in_redis(message: Message[Any]) -> str:
    """The id that a message that was sent has in Redis, its dead letter's too; its own id is another."""
    return str(message.options["redis_message_id"])


def beyond(bound: timedelta) -> set[str]:
    """The rows that say running so long behind their lease."""
    found = set[str]()
    for model in _MODELS:
        late = model.lease_until < func.now() - bound
        with session() as s:
            rows = s.scalars(select(model.id).where(model.status == RUNNING, late))
            found |= {f"{model.__name__} {row}" for row in rows}
    return found


def lapse_leases() -> int:
    """Let the leases of rows that say running end now, as they would within the hour; how many there were.

    For when no message is left, so that nobody works on them: a job whose end could not be written, and whose message
    expired meanwhile, leaves its row to its lease, and that to a janitor.
    """
    found = 0
    for model in _MODELS:
        held = (model.status == RUNNING) & (model.lease_until > func.now())
        with session() as s:
            rows = s.scalars(update(model).where(held).values(lease_until=func.now()).returning(model.id))
            found += len(rows.all())
    return found


@dataclass(frozen=True)
class Spans:
    """When slots are judged from and to, and since when no fault was made any more; night time.

    `on_lease` are the rows that waited for their lease's end when no message was left.
    """

    since: datetime
    until: datetime
    calm_since: datetime
    on_lease: int = 0


def judge(stage: Stage, watch: Watch, spans: Spans) -> Iterator[Line]:
    """Lines on everything; call it when the fleet has ended."""
    watch.read_ledger()
    yield from tallied(stage.broker, stage.journal, watch.sent)
    yield from _slots(stage, watch, spans)
    yield from left_the_house(stage.world)
    yield from _bank(stage, spans.calm_since)
    yield from judge_elastic.judge_rows()
    yield from _house(stage, watch)
    yield said("house", "rows that waited for their lease's end when no message was left", spans.on_lease)


def tallied(broker: FleetBroker, journal: Path, sent: Mapping[str, int]) -> Iterator[Line]:
    """Lines on the messages that are counted, by id in Redis; their jobs wrote their numbers into the journal."""
    ran = Counter(map(int, journal.read_text().split())) if journal.exists() else Counter[int]()
    letters: Any = broker.client.zrange(keys.dead(broker.namespace, "soak"), 0, -1)
    dead = {id.decode() for id in letters}
    lost = [f"message {id}" for id, number in sent.items() if not ran[number] and id not in dead]
    claim = "messages sent that ran or stand in the dead letters"
    yield judged("messages", claim, len(sent), len(sent) - len(lost), lost)
    again = sum(ran[number] - 1 for number in sent.values() if ran[number] > 1)
    yield said("messages", "of those, runs that were repeated (at least once is the contract)", again)


def _slots(stage: Stage, watch: Watch, spans: Spans) -> Iterator[Line]:
    """Of the entry that is deployed over and over no slots are due by one schedule; that none came twice is judged.

    A job that used up its attempts while PostgreSQL was away is a dead letter, and not lost. A process that is killed
    while PostgreSQL is away takes the ends along that it kept: a message that a log says has expired has ended, and a
    slot that still says running when no message is left has too.
    """
    app = stage.hosts.app
    others = replace(app, schedule=tuple(entry for entry in app.schedule if entry.name != TICK))
    plan = Lasted(stage.plan.seconds, stage.plan.seed, stage.plan.folder, since=spans.since, until=spans.until)
    for line in judge_slots.judge_ledger(others, plan, watch.ledger, expired(stage.plan.folder)):
        in_vain = line.claim in (judge_slots.FAILED, judge_slots.UNENDED) and line.verdict == "red"
        yield replace(line, verdict="apart") if in_vain else line
    minutes = replace(app.entry(TICK), cron="* * * * *")
    found = Counter(
        slot
        for line in watch.ledger
        if line.entry == TICK and line.judges and line.count == 1
        for slot in slots_between(minutes, line.first - timedelta(milliseconds=1), line.last)
    )
    twice = [f"{slot:%H:%M} {times}×" for slot, times in found.items() if times > 1]
    yield judged("slots", "slots of the redeployed entry with two verdicts", 0, len(twice), twice)


def expired(folder: Path) -> set[tuple[str, datetime]]:
    """The slots whose message expired, by the fleet's logs."""
    found = set()
    for event in events(folder, "message_expired"):
        entry, _, slot = str(event.get("origin", "")).rpartition("@")
        if entry:
            found.add((entry, datetime.fromisoformat(slot)))
    return found


def left_the_house(world: World) -> Iterator[Line]:
    """Lines on what the sandbox's gateway and mail server wrote down."""
    taken = Counter(line["reference"] for line in lines(world.gateway_log) if line["taken"])
    twice = [f"{reference} {times}×" for reference, times in taken.items() if times > 1]
    yield judged("outside", "filings and charges, by the gateway's log", taken.total(), taken.total(), twice)
    mails = Counter(line["idempotency_key"] for line in lines(world.mail_log) if line["idempotency_key"])
    twice = [f"{key} {times}×" for key, times in mails.items() if times > 1]
    yield judged("outside", "mails, by the mail server's journal", mails.total(), mails.total(), twice)


def _bank(stage: Stage, synced_since: datetime) -> Iterator[Line]:
    """Of accounts whose last sync began behind the last fault: what was cut off before may lie with the bank."""
    truth: Any = httpx.get(f"{stage.world.bank_url}/sandbox/truth", timeout=60).raise_for_status().json()
    served = {account["id"]: account for account in truth["accounts"]}
    with session() as s:
        known = s.scalars(select(BankAccount).where(BankAccount.last_synced_at >= synced_since)).all()
    accounts = [account for account in known if account.external_id in served]
    yield from judge_bank.judge_transactions(accounts, served)
    yield said("bank", "accounts synced once more behind the last fault", f"{len(accounts)} of {len(served)}")


def _house(stage: Stage, watch: Watch) -> Iterator[Line]:
    app = stage.hosts.app
    readings = probe.read(stage.broker, [queue for lane in app.lanes for queue in lane.queues])
    left = [f"{r.queue} {r.ready} waiting, {r.delayed} delayed, {r.in_flight} held" for r in readings if r.left]
    yield judged("house", "messages left anywhere (backlog)", 0, sum(r.left for r in readings), left)
    yield said("house", "dead letters", ", ".join(f"{r.queue} {r.dead}" for r in readings if r.dead) or "none")
    orphans = stage.hosts.orphans()
    yield judged("house", "processes that outlived their supervisor", 0, len(orphans), orphans)
    stuck = list(judge_house.running_rows())
    yield judged("house", "rows that still say running", 0, len(stuck), stuck)
    beyond = sorted(watch.beyond)
    claim = f"rows that said running {watch.bound.total_seconds():.0f} s behind their lease"
    yield judged("house", claim, 0, len(beyond), beyond)
