"""What the engine leaves in Redis for ever is on the list of permanent keys, or is a queue's own."""

from __future__ import annotations

import re
from datetime import timedelta

import dramatiq
import redis
from dramatiq.middleware import Retries

from fleet import parking
from fleet.broker import FleetBroker, keys
from fleet.workers.presence import Presence, Report
from fleet.workers.worker import FleetWorker
from tests.waiting import wait_until

# Dramatiq's lists, bodies and dead letters of a queue, and what stands beside them for as long as they do.
OF_A_QUEUE = re.compile(r":work(\.DQ)?(\.msgs|\.XQ(\.msgs)?)?$|:fleet:(due|dead):work$|:__acks__\.|:fleet:held:")


def test_every_key_without_an_expiry_is_on_the_list_or_a_queues_own(
    redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    broker = FleetBroker(url=redis_url, namespace=namespace, middleware=[Retries(max_retries=0)])  # type: ignore[no-untyped-call]

    @dramatiq.actor(broker=broker, queue_name="work")
    def fail() -> None:
        raise ValueError("for a dead letter")

    worker = FleetWorker(broker, worker_threads=1)
    worker.start()
    presence = Presence(broker.client, namespace, lambda: Report("worker", "a lane"))
    presence.start()
    fail.send()
    fail.send_with_options(delay=60_000)
    parking.park(broker, "bank 7", timedelta(seconds=5))
    wait_until(lambda: redis_client.exists(keys.dead(namespace, "work"), keys.processes(namespace)) == 2)
    permanent = {key(namespace) for key in keys.PERMANENT}
    found = [key.decode() for key in redis_client.scan_iter(f"{namespace}:*")]
    forever = {key for key in found if redis_client.ttl(key) == -1}
    presence.stop()
    worker.stop()
    assert len(found) > len(forever) > 5
    assert {key for key in forever - permanent if not OF_A_QUEUE.search(key)} == set()
