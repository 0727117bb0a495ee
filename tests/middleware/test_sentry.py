"""Sentry gets one event for a dead letter and none for anything else, read at an ingest server of the test's own."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from fleet import Budget, Retry, queue
from fleet import app as application
from fleet.errors import RetryLater
from fleet.settings import Settings
from middleware.sentry import Sentry
from tests.waiting import wait_until

SECRET = "DE89370400440532013000"
ONCE = Retry(attempts=1, first=timedelta(seconds=1), longest=timedelta(seconds=1))
SHORT = Budget(timedelta(milliseconds=100), timedelta(seconds=5), because="a test waits for its end")


class Ingest:
    """A server that keeps the envelopes posted to it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.slow = threading.Event()
        bodies, slow = self.bodies, self.slow

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if slow.is_set():
                    threading.Event().wait(0.5)
                bodies.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.dsn = f"http://key@127.0.0.1:{self._server.server_port}/1"

    def events(self) -> list[dict[str, Any]]:
        found = []
        for body in self.bodies:
            _, *items = body.split(b"\n")
            for header, payload in zip(items[::2], items[1::2], strict=False):
                if json.loads(header).get("type") == "event":
                    found.append(json.loads(payload))
        return found

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def ingest(house: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ingest]:
    """The house configured to report to a server of the test's own."""
    import sentry_sdk

    server = Ingest()
    configured = application.settings()
    settings = Settings(
        redis_url=configured.redis_url,
        namespace=configured.namespace,
        database_url=None,
        sentry_dsn=server.dsn,
        sentry_environment="a-test",
    )
    monkeypatch.setattr(application, "settings", lambda: settings)
    yield server
    house.stop()
    sentry_sdk.get_client().close(timeout=1)
    sentry_sdk.get_global_scope().set_client(None)
    server.close()


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
