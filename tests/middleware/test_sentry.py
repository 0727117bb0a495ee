"""Sentry gets one event for a dead letter and none for anything else, read at an ingest server of the test's own."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
from datetime import timedelta
from typing import Any

import dramatiq
import pytest
import sentry_sdk
from dramatiq.middleware import Shutdown

from fleet import Budget, Retry, queue, wire
from fleet.errors import DeclarationInvalid, RetryLater
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
    assert event["tags"] == {
        "process": "worker",
        "lane": "lane",
        "queue": "work",
        "actor": "job",
        "attempt": "3",
        "outcome": "failed",
        "message_id": message.message_id,
    }
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
    queue("work").actor(name="late")(lambda: None).send_with_options(expires_at=10**12)
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


def test_a_slots_message_and_what_it_sent_say_of_which_slot_they_are(house: Any, ingest: Ingest) -> None:
    child = queue("work").actor(name="child", retry=ONCE)(fail)
    queue("work").actor(name="parent", retry=ONCE)(lambda: child.send(SECRET)).send_with_options(
        **{wire.ENTRY: "audit", wire.SLOT: 1_772_000_000_000}
    )
    house.work()
    wait_until(house.dead)
    house.stop()
    (event,) = ingest.events()
    assert (event["tags"]["actor"], event["tags"]["entry"], event["tags"]["slot"]) == (
        *("child", "audit"),
        "2026-02-25T06:13:20+00:00",
    )


def test_a_job_that_a_shutdown_cuts_off_in_its_last_attempt_is_no_event(house: Any, ingest: Ingest) -> None:
    began = threading.Event()

    def cut() -> None:
        if began.is_set():
            return
        began.set()
        raise Shutdown

    queue("work").actor(name="cut", retry=ONCE)(cut).send()
    house.work()
    house.until_idle()
    house.stop()
    assert house.dead() == []
    assert ingest.events() == []


def test_a_job_that_is_told_to_wait_once_too_often_is_one_event(house: Any, ingest: Ingest) -> None:
    def never() -> None:
        raise RetryLater("429", after=timedelta(milliseconds=10))

    queue("work").actor(name="never")(never).send()
    house.work()
    wait_until(house.dead)
    house.stop()
    assert [one["exception"]["values"][-1]["type"] for one in ingest.events()] == ["RetryLater"]


def test_an_argument_is_told_only_if_its_actor_lists_it(house: Any, ingest: Ingest) -> None:
    def settle(account_id: int, note: str, run: int = 0) -> None:
        raise ValueError(f"account {account_id}: no way to settle {note!r} in run {run}")

    actor = queue("work").actor(name="settle", retry=ONCE, safe_args=("account_id", "run"))(settle)
    actor.send(4_711, "Wie mit Erika besprochen", run=88)
    queue("work").actor(name="closed", retry=ONCE)(settle).send(4_712, note="Wie mit Max besprochen")
    house.work()
    wait_until(lambda: len(house.dead()) == 2)
    house.stop()
    listed, closed = sorted(ingest.events(), key=lambda event: event["tags"]["actor"], reverse=True)
    assert listed["contexts"]["job"] == {"type": "job", "account_id": 4_711, "run": 88}
    assert listed["exception"]["values"][-1]["value"] == "account 4711: no way to settle '[removed]' in run 88"
    assert closed["contexts"]["job"] == {"type": "job"}
    variables = closed["exception"]["values"][-1]["stacktrace"]["frames"][-1]["vars"]
    assert variables == {"account_id": "[removed]", "note": "[removed]", "run": "0"}
    assert "4712" not in closed["exception"]["values"][-1]["value"]
    assert "besprochen" not in closed["exception"]["values"][-1]["value"]


@pytest.mark.parametrize(
    ("listed", "said"),
    [(("acount_id",), "Did you mean 'account_id'?"), (("kwargs",), "no parameter"), ("account_id", "give a tuple")],
)
def test_a_safe_argument_that_is_no_parameter_is_refused(house: Any, listed: Any, said: str) -> None:
    def settle(account_id: int, **kwargs: int) -> None: ...

    with pytest.raises(DeclarationInvalid, match=r"test_sentry\.py") as refused:
        queue("work").actor(name="settle", safe_args=listed)(settle)
    assert said in str(refused.value)
    assert "settle" not in house.broker.actors


def test_two_thousand_skipped_messages_leave_no_scope_behind(house: Any, ingest: Ingest) -> None:
    def scopes() -> int:
        gc.collect()
        return sum(issubclass(type(one), sentry_sdk.Scope) for one in gc.get_objects())  # some proxies wake when asked

    late = queue("work").actor(name="late")(lambda: None)
    house.work()
    late.send_with_options(expires_at=10**12)
    house.until_idle()
    before = scopes()
    for _ in house.broker.enqueue_many(late.message_with_options(expires_at=10**12) for _ in range(2_000)):
        pass
    house.until_idle(60)
    assert scopes() <= before + 8
    failing = queue("work").actor(name="job", retry=ONCE)(fail).send(SECRET)
    wait_until(house.dead)
    house.stop()
    (event,) = ingest.events()
    assert event["tags"]["message_id"] == failing.message_id
    assert not [one for one in event.get("breadcrumbs", {}).get("values", ()) if "late" in json.dumps(one)]


def test_a_scope_that_an_interrupted_hook_left_open_ends_with_the_next_message(house: Any, ingest: Ingest) -> None:
    class Interrupted(BaseException): ...

    class Breaks(dramatiq.Middleware):
        struck = 0

        def after_process_message(self, broker: Any, message: Any, **_: Any) -> None:
            if self.struck < 2:  # an interrupted hook is called again, with what interrupted it
                self.struck += 1
                sentry_sdk.set_tag("left", "behind")
                raise Interrupted

    house.broker.add_middleware(Breaks())
    queue("work").actor(name="fine")(lambda: None).send()
    house.work()
    house.until_idle()
    queue("work").actor(name="job", retry=ONCE)(fail).send_many([(SECRET,)] * 4)
    wait_until(lambda: len(house.dead()) == 4)
    house.stop()
    assert len(ingest.events()) == 4
    assert not any("left" in event["tags"] for event in ingest.events())


def test_the_sdks_own_middleware_is_taken_out_of_a_worker(house: Any, ingest: Ingest) -> None:
    from sentry_sdk.integrations.dramatiq import DramatiqIntegration, SentryMiddleware

    sentry_sdk.init(dsn=ingest.dsn, default_integrations=False, integrations=[DramatiqIntegration()])
    house.broker.middleware.insert(0, SentryMiddleware())
    queue("work").actor(name="job")(fail).send(SECRET)
    house.work()
    house.until_idle()
    house.stop()
    assert len(ingest.events()) == 1


def test_what_an_application_began_by_itself_is_scrubbed_too_behind_its_own_hook(house: Any, ingest: Ingest) -> None:
    seen: list[Any] = []
    sentry_sdk.init(
        dsn=ingest.dsn, default_integrations=False, before_send=lambda event, hint: seen.append(event) or event
    )
    queue("work").actor(name="job", retry=ONCE)(fail).send(SECRET)
    house.work()
    wait_until(house.dead)
    house.stop()
    assert len(seen) == len(ingest.events()) == 1
    assert not any(SECRET.encode() in body for body in ingest.bodies)


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
