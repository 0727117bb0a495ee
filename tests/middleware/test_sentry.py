"""Sentry gets one event for a dead letter and none for anything else, read at an ingest server of the test's own."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import timedelta
from typing import Any

from fleet import Budget, Retry, queue
from fleet.errors import RetryLater
from middleware.sentry import Sentry
from tests.middleware.ingest import Ingest
from tests.waiting import wait_until

SECRET = "DE89370400440532013000"
ONCE = Retry(attempts=1, first=timedelta(seconds=1), longest=timedelta(seconds=1))
SHORT = Budget(timedelta(milliseconds=100), timedelta(seconds=5), because="a test waits for its end")


def fail(iban: str) -> None:
    local = iban
    raise ValueError(f"a text of {len(local)} letters")


def test_a_dead_letter_is_one_event_however_often_it_was_tried(house: Any, ingest: Ingest) -> None:
    message = queue("work").actor(name="job")(fail).send(SECRET)
    house.work()
    house.until_idle()
    house.stop()
    (event,) = ingest.events()
    (value,) = event["exception"]["values"]
    assert (value["type"], value["value"]) == ("ValueError", "a text of 22 letters")
    tags = event["tags"] | {"attempt": int(event["tags"]["attempt"])}
    assert tags == {"queue": "work", "actor": "job", "attempt": 3, "message_id": message.message_id}
    assert event["environment"] == "a-test"


def test_arguments_and_local_variables_never_leave_the_process(house: Any, ingest: Ingest) -> None:
    queue("work").actor(name="job", retry=ONCE)(fail).send(SECRET)
    queue("work").actor(name="named", retry=ONCE)(fail).send(iban=SECRET)
    house.work()
    house.until_idle()
    house.stop()
    assert len(ingest.events()) == 2
    assert not any(SECRET.encode() in body for body in ingest.bodies)


def test_retries_skips_and_expiries_are_no_event(house: Any, ingest: Ingest) -> None:
    tries: list[int] = []

    def second_time_lucky() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise RetryLater("429", after=timedelta(milliseconds=10))
        if len(tries) == 2:
            raise ValueError("not yet")

    queue("work").actor(name="lucky")(second_time_lucky).send()
    queue("work").actor(name="late")(lambda: None).send_with_options(expires_at=1)
    house.work()
    house.until_idle()
    house.stop()
    assert len(tries) == 3
    assert ingest.events() == []


def test_a_job_cut_by_its_budget_is_an_event(house: Any, ingest: Ingest) -> None:
    def endless() -> None:
        while True:
            threading.Event().wait(0.005)

    queue("work").actor(name="endless", budget=SHORT)(endless).send()
    house.work()
    house.until_idle()
    house.stop()
    (event,) = ingest.events()
    assert event["exception"]["values"][-1]["type"] == "DeadlineExceeded"


def test_a_worker_that_ends_right_after_a_dead_letter_has_sent_it(house: Any, ingest: Ingest) -> None:
    """A worker process leaves by os._exit: what the SDK still holds then is lost."""
    ingest.slow.set()
    queue("work").actor(name="job", retry=ONCE)(fail).send(SECRET)
    house.work()
    wait_until(house.dead)
    house.stop()
    assert len(ingest.events()) == 1


def test_without_a_dsn_the_sdk_is_not_even_imported() -> None:
    code = f"""
import sys
from {Sentry.__module__} import Sentry
from fleet import app
from fleet.settings import Settings
app.settings = lambda: Settings(sentry_dsn=None)
Sentry().before_worker_boot(None, None)
assert "sentry_sdk" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
