"""Every Redis key of the engine, built in one place.

Dramatiq's own keys keep Dramatiq's names, so that stock producers and workers can share a queue with ours. Ours stand
under `<namespace>:fleet:`; a queue name cannot hold a colon, so the two never meet.
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


def leader(namespace: str) -> str:
    """Who leads the beat: its token; expires with the term."""
    return f"{namespace}:fleet:beat:leader"


def epoch(namespace: str) -> str:
    """How many terms there were; permanent."""
    return f"{namespace}:fleet:beat:epoch"


def marks(namespace: str) -> str:
    """Entry -> milliseconds of the last slot that got a verdict; permanent."""
    return f"{namespace}:fleet:beat:marks"


def ledger(namespace: str) -> str:
    """The stream of verdicts on slots; permanent, capped in length."""
    return f"{namespace}:fleet:beat:ledger"


def processes(namespace: str) -> str:
    """Process id -> what it is and runs (JSON); entries not renewed are pruned by every reader."""
    return f"{namespace}:fleet:processes"


def processes_seen(namespace: str) -> str:
    """Process id -> milliseconds it last reported at, by the server's clock."""
    return f"{namespace}:fleet:processes:seen"


PERMANENT = (epoch, marks, ledger, processes, processes_seen, heartbeats)
"""Keys that stand without an expiry on purpose; Dramatiq's queues, bodies and dead letters are the others."""
