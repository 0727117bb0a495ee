"""One beat replica: `python -m beat --app ROOT`, or `fleet beat`.

The leader's thread campaigns, APScheduler's thread rings, and the main thread fires: at each ring for the entry that
rang, and every second for all. When Redis is away it says so once and goes on trying; nothing makes it exit but a
signal.
"""

from __future__ import annotations

import argparse
import queue
import signal
from pathlib import Path

import redis

from beat.alarm import alarm_clock
from beat.fire import Firer
from beat.leader import Leader
from fleet import metrics
from fleet.app import App, load, process_broker, settings
from fleet.broker.connection import client_from
from fleet.clock import clock
from fleet.clock import configure as configure_clock
from fleet.logs import configure as configure_logs
from fleet.logs import get_logger
from fleet.servers import require_broker
from fleet.workers.presence import Presence, Report

log = get_logger(__name__)

_PASS_SECONDS = 1.0
_STALE_SECONDS = 10.0
_ALL = None
_STOP = object()


def run(app: App) -> None:
    """Beat until SIGTERM or SIGINT.

    Raises `NotDeclared` if an entry names an actor that is not there, `ServerUnreachable`, `ServerTooOld` or
    `ServerRefused` if Redis cannot be used at the start.
    """
    for entry in app.schedule:
        app.actor(entry.actor)
    broker, configured = process_broker(), settings()
    require_broker(broker)
    rings: queue.SimpleQueue[object] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: rings.put(_STOP))
    assert configured.redis_url is not None  # else the broker would not be there
    leader = Leader(
        client_from(configured.redis_url, answers_within=configured.leader_renewal),
        broker.namespace,
        ttl=configured.leader_ttl,
        renewal=configured.leader_renewal,
        on_elected=lambda: rings.put(_ALL),
    )
    firer = Firer(broker, leader, app.schedule)
    alarm = alarm_clock(app.schedule, rings.put)
    last_pass = _LastPass()
    where = metrics.serve(configured.metrics_host, port=configured.metrics_port, ready=last_pass.missing)

    def report() -> Report:
        return Report("beat", "beat", worker_id=leader.token, leads=leader.leads(), metrics=where)

    presence = Presence(broker.client, broker.namespace, report)
    leader.start()
    alarm.start()
    presence.start()
    log.info("beat_started", token=leader.token, entries=len(app.schedule), metrics=where)
    try:
        _fire_until_stopped(rings, firer, last_pass)
    finally:
        alarm.shutdown(wait=False)
        leader.stop()
        presence.stop()
        log.info("beat_ended", token=leader.token)


class _LastPass:
    """When this replica last went over the whole schedule, leading or not."""

    def __init__(self) -> None:
        self.at: float | None = None

    def missing(self) -> str | None:
        """Why it is not ready; None when it is."""
        if self.at is None:
            return "no pass over the schedule yet: Redis away or just started"
        silent = clock.monotonic() - self.at
        if silent < _STALE_SECONDS:
            return None
        return f"the last pass over the schedule was {silent:.0f} s ago: Redis away or thread hung"


def _fire_until_stopped(rings: queue.SimpleQueue[object], firer: Firer, last_pass: _LastPass) -> None:
    lost, next_pass = False, clock.monotonic()
    while True:
        try:
            ring = rings.get(timeout=max(0.0, next_pass - clock.monotonic()))
        except queue.Empty:
            ring = _ALL
        if ring is _STOP:
            return
        if clock.monotonic() >= next_pass:  # however often some entries ring, those whose ring was lost get their pass
            ring, next_pass = _ALL, clock.monotonic() + _PASS_SECONDS
        try:
            firer.pass_over(None if ring is _ALL else [str(ring)])
        except redis.RedisError as error:
            if not lost:
                log.error("beat_cannot_fire", error=str(error))
            lost = True
        else:
            last_pass.at = clock.monotonic() if ring is _ALL else last_pass.at
            if lost:
                log.warning("beat_fires_again")
            lost = False


def main() -> None:
    """The entry point; configuration comes from the environment and one argument."""
    parser = argparse.ArgumentParser(prog="python -m beat")
    parser.add_argument("--app", type=Path, default=Path("."))
    app = load(parser.parse_args().app)
    configured = settings()
    configure_logs(configured.log_format, configured.log_level)
    configure_clock(configured)
    run(app)


if __name__ == "__main__":
    main()
