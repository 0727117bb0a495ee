"""Every Redis key of the engine, built in one place.

Dramatiq's own keys keep Dramatiq's names, so that stock producers and workers can share a queue with ours. Ours stand
under `<namespace>:fleet:`; a queue name cannot hold a colon, so the two never meet.

Longer than a file should be, since there is one place for keys: it is a list, read by looking one of them up.
"""

from __future__ import annotations


def heartbeats(namespace: str) -> str:
    """Dramatiq's: worker id -> wall-clock milliseconds of its last command."""
    return f"{namespace}:__heartbeats__"


def queue(namespace: str, name: str) -> str:
    """Dramatiq's: the list of message ids that wait."""
    return f"{namespace}:{name}"


def bodies(namespace: str, name: str) -> str:
    """Dramatiq's: message id -> encoded message, waiting or in flight."""
    return f"{namespace}:{name}.msgs"


def dead(namespace: str, name: str) -> str:
    """Dramatiq's: the dead letters of a queue, by the milliseconds they died at."""
    return f"{namespace}:{name}.XQ"


def dead_bodies(namespace: str, name: str) -> str:
    """Dramatiq's: message id -> encoded message of the dead letters."""
    return f"{namespace}:{name}.XQ.msgs"


def delayed(name: str) -> str:
    """Dramatiq's name of a queue's delay queue."""
    return f"{name}.DQ"


def acks(namespace: str, worker: str, name: str) -> str:
    """Dramatiq's: the ids of a queue that a worker holds."""
    return f"{namespace}:__acks__.{worker}.{name}"


def held(namespace: str, worker: str, name: str) -> str:
    """The same ids with the order they were fetched in; ends with the last of them."""
    return f"{namespace}:fleet:held:{worker}:{name}"


def due(namespace: str, name: str) -> str:
    """The delayed ids of a queue, by the server's milliseconds they are due at."""
    return f"{namespace}:fleet:due:{name}"


def dead_details(namespace: str, name: str) -> str:
    """Message id -> why and when it died (JSON), beside the dead letters."""
    return f"{namespace}:fleet:dead:{name}"


def suspects(namespace: str, name: str) -> str:
    """The list of ids that are to run alone, each in a process of its own."""
    return f"{namespace}:fleet:suspects:{name}"


def losses(namespace: str, name: str) -> str:
    """Message id -> how often its worker was lost with it; any end clears it, and three days without one more."""
    return f"{namespace}:fleet:losses:{name}"


def deaths(namespace: str, name: str) -> str:
    """Message id -> what the processes died of that died in its body; cleared as its losses are."""
    return f"{namespace}:fleet:deaths:{name}"


def one_at_a_time(namespace: str, name: str) -> str:
    """Stands for a minute after a process that ran a suspect was lost and nobody can say by whose doing."""
    return f"{namespace}:fleet:one-at-a-time:{name}"


def of_turn(namespace: str, worker: str, name: str, *, alone: bool = False) -> list[str]:
    """The twelve keys of a queue that a turn touches, in the script's order; `alone` for who runs its suspects."""
    return [
        suspects(namespace, name) if alone else queue(namespace, name),
        bodies(namespace, name),
        acks(namespace, worker, name),
        held(namespace, worker, name),
        due(namespace, name),
        queue(namespace, delayed(name)),
        bodies(namespace, delayed(name)),
        dead(namespace, name),
        dead_bodies(namespace, name),
        dead_details(namespace, name),
        losses(namespace, name),
        deaths(namespace, name),
    ]


def of_reaping(namespace: str, worker: str, name: str) -> list[str]:
    """The eleven keys of a queue that a reaping touches, in the script's order."""
    return [
        queue(namespace, name),
        bodies(namespace, name),
        acks(namespace, worker, name),
        held(namespace, worker, name),
        suspects(namespace, name),
        losses(namespace, name),
        deaths(namespace, name),
        dead(namespace, name),
        dead_bodies(namespace, name),
        dead_details(namespace, name),
        one_at_a_time(namespace, name),
    ]


def turn(namespace: str, worker: str) -> str:
    """A worker's last turn: its number and answer; expires with the worker's silence."""
    return f"{namespace}:fleet:turn:{worker}"


def tombstone(namespace: str, worker: str) -> str:
    """Stands when a worker was reaped; expires after a day, or a minute where somebody saw its process end."""
    return f"{namespace}:fleet:tombstone:{worker}"


def sender(namespace: str, name: str) -> str:
    """The id of a sending thread's last call; expires with its silence."""
    return f"{namespace}:fleet:sender:{name}"


def beats(namespace: str) -> str:
    """Worker id -> a counter that its every command moves; a reaper watches whether it still does."""
    return f"{namespace}:fleet:beats"


def awaited(namespace: str) -> str:
    """The queues that a consumer found empty since somebody was last woken for them; permanent."""
    return f"{namespace}:fleet:awaited"


def workers(namespace: str) -> str:
    """Worker id -> its queues (JSON), from its first turn to its end or its reaping."""
    return f"{namespace}:fleet:workers"


def parked(namespace: str, key: str) -> str:
    """Stands while a key (a bank connection, a model) is parked; expires with the parking."""
    return f"{namespace}:fleet:parked:{key}"


def outbox(namespace: str) -> str:
    """Accepted ids of the outbox, by the server's seconds; each ends with its row, all after two silent days."""
    return f"{namespace}:fleet:outbox"


def relay_turn(namespace: str) -> str:
    """Stands while the outbox was just relayed, so that a fleet's supervisors take turns; expires within a second."""
    return f"{namespace}:fleet:relay"


def catalogue(namespace: str) -> str:
    """Actor -> its queue, parameters and when it was published (JSON), as the newest worker did; permanent."""
    return f"{namespace}:fleet:catalogue"


def wake(namespace: str) -> str:
    """The channel on which a queue's name says that it may have something."""
    return f"{namespace}:fleet:wake"


def leader(namespace: str) -> str:
    """Who leads the beat: its token; expires with the term."""
    return f"{namespace}:fleet:beat:leader"


def epoch(namespace: str) -> str:
    """How many terms there were; permanent."""
    return f"{namespace}:fleet:beat:epoch"


def schedule(namespace: str) -> str:
    """Of the stored schedule: `generation` counts its changes, `digest` says which it is, `looks` how often processes
    of that very schedule looked; `judged` how often slots were given verdicts; permanent."""
    return f"{namespace}:fleet:beat:schedule"


def revisions(namespace: str) -> str:
    """Entry -> its revisions, one a line, oldest first: number, when it began, what it says; permanent."""
    return f"{namespace}:fleet:beat:revisions"


def marks(namespace: str) -> str:
    """Entry -> milliseconds of the last slot that got a verdict; permanent."""
    return f"{namespace}:fleet:beat:marks"


def paused(namespace: str) -> str:
    """Entry -> by whom it was paused, when and why (JSON); permanent."""
    return f"{namespace}:fleet:beat:paused"


def runs(namespace: str) -> str:
    """Entry -> the id of the last message that was sent for one of its slots; permanent."""
    return f"{namespace}:fleet:beat:runs"


def runs_by_hand(namespace: str) -> str:
    """Entry -> the id of the last message that a person had sent; permanent."""
    return f"{namespace}:fleet:beat:runs-by-hand"


def ledger(namespace: str, entry: str) -> str:
    """The stream of verdicts on an entry's slots; permanent, capped in length."""
    return f"{namespace}:fleet:beat:ledger:{entry}"


def processes(namespace: str) -> str:
    """Process id -> what it is and runs (JSON); entries not renewed are pruned by every reader."""
    return f"{namespace}:fleet:processes"


def processes_seen(namespace: str) -> str:
    """Process id -> milliseconds it last reported at, by the server's clock."""
    return f"{namespace}:fleet:processes:seen"


def entry_runs(namespace: str, entry: str) -> str:
    """The stream of an entry's runs, as workers began and ended them; capped, expires five weeks after the last."""
    return f"{namespace}:fleet:entry-runs:{entry}"


def of_probing(namespace: str, name: str) -> list[str]:
    """The seven keys of a queue that a probe reads, in the script's order."""
    return [
        queue(namespace, name),
        suspects(namespace, name),
        bodies(namespace, name),
        queue(namespace, delayed(name)),
        bodies(namespace, delayed(name)),
        due(namespace, name),
        dead(namespace, name),
    ]


def flow(namespace: str, minute: int) -> str:
    """What processes counted in a night minute (since 1970): figure -> count; expires after twenty night minutes."""
    return f"{namespace}:fleet:flow:{minute}"


def prefetched(namespace: str) -> str:
    """Worker id -> for each queue since when (ms) the oldest message is due that it fetched and no thread began (JSON);
    expires with the silence of all workers."""
    return f"{namespace}:fleet:prefetched"


def readings(namespace: str) -> str:
    """The newest reading of all queues: `at`, `minute`, `reading` (JSON), and `by:<who>` when each took its last;
    expires after a night day without one."""
    return f"{namespace}:fleet:readings"


def history(namespace: str) -> str:
    """The stream of readings, a compact one a night minute, capped; expires after two night days without one."""
    return f"{namespace}:fleet:readings:history"


def alerts(namespace: str) -> str:
    """kind:subject -> its episode (JSON), pending, open, or closed and not yet said; expires after a night week
    without a judge."""
    return f"{namespace}:fleet:alerts"


def quota(namespace: str, name: str, holder: str) -> str:
    """The places of a quota that people, or batch, hold: each with the end of its lease; expires with the last."""
    return f"{namespace}:fleet:quota:{name}:{holder}"


def allowance(namespace: str, entry: str) -> str:
    """How many chains of an elastic entry may run, the leader's state of it, and what it learned of its rows (JSON);
    expires after 180 s (night)."""
    return f"{namespace}:fleet:allow:{entry}"


def hold(namespace: str, entry: str) -> str:
    """Stands while a person holds an elastic entry: by whom, why and until when (JSON); expires with the hold."""
    return f"{namespace}:fleet:hold:{entry}"


def decisions(namespace: str, entry: str) -> str:
    """The stream of what an elastic entry was allowed: by the balancer, and by people's acts; permanent, capped in
    length."""
    return f"{namespace}:fleet:decisions:{entry}"


def chains(namespace: str, entry: str) -> str:
    """Chain number -> the id of the last message that was seeded for it; permanent."""
    return f"{namespace}:fleet:chains:{entry}"


def measures(namespace: str, entry: str) -> str:
    """What full chunks of an elastic entry took in all (chunks, rows, cpu_us, wall_us, and waited_us: how long their
    threads were ready and waited for a core), and how many others ended early; ends a day after the last."""
    return f"{namespace}:fleet:measures:{entry}"


def balance_off(namespace: str) -> str:
    """Stands while a person has the balancer off: by whom, when and why (JSON); permanent."""
    return f"{namespace}:fleet:balance-off"


def audit(namespace: str) -> str:
    """The stream of what people did, where no database keeps it; permanent, capped in length."""
    return f"{namespace}:fleet:audit"


PERMANENT = (
    *(epoch, schedule, revisions, marks, paused, runs, runs_by_hand),
    *(processes, processes_seen, heartbeats, beats, awaited, workers, catalogue, audit, balance_off),
)
"""Keys that stand without an expiry on purpose; so do an entry's ledger, decisions and chains, and
Dramatiq's queues, bodies, dead letters."""
