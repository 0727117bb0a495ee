"""One beat replica: `python -m beat --app ROOT`, or `fleet beat`.

The leader's thread campaigns, APScheduler's thread rings, and the main thread fires. A replica whose alarm clock died
or whose firing hangs says so at `/healthz`, and gives up the lead. When Redis is away it says so once and goes on
trying; nothing makes it exit but a signal.
"""

from __future__ import annotations

import argparse
import signal
from dataclasses import replace
from pathlib import Path
from typing import get_args

import redis

from beat.alarm import AlarmClock
from beat.balancer import BalancerRules
from beat.balancing import Balancing
from beat.fire import Firer
from beat.firing import Firing
from beat.leader import Leader
from beat.now import Now
from beat.probing import ANSWERS_WITHIN, Probing
from beat.seeding import Seeding
from fleet import alerts, metrics, quota, read_gauges, readings, sentry
from fleet.allowance import Reason, allowances
from fleet.app import App, balancer_rules, load, process_broker, settings
from fleet.bell import Bell
from fleet.broker import FleetBroker
from fleet.broker.connection import client_from
from fleet.clock import clock
from fleet.clock import configure as configure_clock
from fleet.ledger import VERDICTS
from fleet.logs import configure as configure_logs
from fleet.logs import get_logger
from fleet.payloads import own_fingerprints
from fleet.servers import wait_for_broker
from fleet.settings import Settings
from fleet.workers.presence import Presence, Report

log = get_logger(__name__)


def run(app: App) -> None:
    """Beat until SIGTERM or SIGINT.

    Raises `NotDeclared` if an entry names an actor that is not there, `ServerTooOld` or `ServerRefused` if Redis cannot
    be used at the start; one that does not answer is waited for.
    """
    for entry in app.schedule:
        app.actor(entry.actor)
    broker, configured = process_broker(), settings()
    client = broker.client  # `SettingsInvalid` without a URL
    replica = _Replica(app, broker, configured)
    sentry.begin(configured, process="beat")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, replica.resign)
    where = metrics.serve(
        configured.metrics_host, port=configured.metrics_port, healthy=replica.healthy, ready=replica.ready
    )
    _export(app, broker, client_from(str(configured.redis_url), answers_within=ANSWERS_WITHIN))
    presence = Presence(client, broker.namespace, lambda: replica.report(where))
    presence.start()
    try:
        replica.run(where)
    finally:
        presence.stop()
        sentry.flush()


def _export(app: App, broker: FleetBroker, client: redis.Redis) -> None:
    """Have `/metrics` say what stands in Redis, beside what this process counts."""
    elastic = [entry for entry in app.schedule if entry.elastic]
    read_gauges.export(
        queues=lambda: read_gauges.of_queues(readings.latest(broker, client)),
        alerts=lambda: read_gauges.of_alerts(one.finding.kind for one in alerts.open_alerts(broker, client)),
        allowances=lambda: read_gauges.of_allowances(
            {entry.name: granted.places for entry, granted in allowances(broker, elastic, clock.now(), client)}
        ),
        quotas=lambda: (
            read
            for one in app.quotas
            for held in [quota.usage(broker, one, client)]
            for read in read_gauges.of_quota(one.name, one.places, people=held.people, batch=held.batch)
        ),
    )


class _Replica:
    """The threads of a beat, and what each needs of the others."""

    def __init__(self, app: App, broker: FleetBroker, configured: Settings) -> None:
        self._broker = broker
        assert configured.redis_url is not None
        self._entries, now = len(app.schedule), Now()
        elastic = any(entry.elastic for entry in app.schedule)
        metrics.begin_beat(
            [entry.name for entry in app.schedule], VERDICTS, reasons=get_args(Reason) if elastic else ()
        )
        self._leader = Leader(
            client_from(configured.redis_url, answers_within=configured.leader_renewal),
            broker.namespace,
            ttl=configured.leader_ttl,
            renewal=configured.leader_renewal,
            fit=self.healthy,
            on_elected=lambda: self._firing.ring(),
        )
        firer = Firer(broker, self._leader, app.schedule, now)
        balancing, seeding = (client_from(configured.redis_url, answers_within=ANSWERS_WITHIN) for _ in range(2))
        seeded = Seeding(firer, broker, seeding, self._leader, app.schedule)
        self._firing = Firing(seeded, now, lambda: self._alarm.set_again())
        rules = balancer_rules(app) or BalancerRules()
        self._balancing = Balancing(broker, balancing, self._leader, app.schedule, rules, now)
        self._alarm = AlarmClock(app.schedule, self._firing.ring, now)
        self._probing = Probing(
            broker,
            client_from(configured.redis_url, answers_within=ANSWERS_WITHIN),
            self._leader.leads,
            self.ready,
        )
        self._resigned = Bell()

    def run(self, where: str) -> None:
        """Beat until told to resign, from when Redis answers."""
        wait_for_broker(
            self._broker,
            "beat",
            self._resigned,
            lambda error: log.error("beat_waits_for_redis", error=str(error), tries_again_every="1s"),
        )
        self._balancing.start()  # imports what counts backlogs, before slots are waited for
        self._alarm.start()
        self._leader.start()
        self._probing.start()
        log.info("beat_started", token=self._leader.token, entries=self._entries, metrics=where)
        try:
            self._firing.run()
        finally:
            self._balancing.stop()
            self._probing.stop()
            self._leader.stop()
            self._alarm.stop()
            log.info("beat_ended", token=self._leader.token)

    def resign(self, *_: object) -> None:
        """Release the lead, whatever the main thread is about, and end. The handler of signals."""
        self._resigned.set()
        self._leader.resign()
        self._firing.stop()

    def healthy(self) -> str | None:
        return self._alarm.complaint() or self._firing.healthy()

    def ready(self) -> str | None:
        return self.healthy() or self._firing.ready()

    def report(self, where: str) -> Report:
        leader = self._leader
        said = Report("beat", "beat", worker_id=leader.token, leads=leader.leads(), metrics=where)
        known = own_fingerprints(settings())
        return replace(said, term=leader.epoch, leads_since=leader.leads_since, payload_keys=known)


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
