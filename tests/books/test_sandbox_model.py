"""The sandbox model as a process of its own, and the client that gets on with it; twenty minutes of night a second."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from books.model import ModelClient, ModelRateLimited, ModelRefused, ModelStep, ModelUnavailable
from books.sandbox.model.server import AT_ONCE
from books.sandbox.model.weather import FAILURES, LIMITS, MALFORMED, MOST_FAULTS, Fault, Weather
from fleet.clock import Night, clock, environment

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
SEED, KEY = 5, "sandbox-key"
RECEIPT = "Kiosk Ahlers e.K.\nDatum 01.03.2026\nZeitung 2,50\nSumme EUR 12,34\ninkl. MwSt 19 % 1,97"
CATEGORIES = ("Energy", "Rent", "Other")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {
                    "account_id": {"type": "integer"},
                    "currency": {"type": "string", "enum": ["EUR", "GBP"]},
                    "since": {"type": "string", "format": "date"},
                },
                "required": ["account_id", "currency", "since"],
            },
        },
    }
    for name in ("balances", "transactions", "invoices", "receipts")
]


@dataclass
class Sandbox:
    """A running server, its journal, and a client."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    client: ModelClient

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture(scope="module")
def night() -> Iterator[Night]:
    night = Night(origin=datetime(2026, 3, 2, 1, 0, tzinfo=UTC), anchor=datetime.now(UTC), rate=1200.0)
    clock.set_night(night)
    yield night
    clock.set_night(None)


def start(folder: Path, night: Night) -> Sandbox:
    ready, log = folder / "ready", folder / "model.jsonl"
    command = [sys.executable, "-m", "books.sandbox.model", "--ready-file", str(ready), "--log", str(log)]
    command += ["--port", "0", "--seed", str(SEED), "--key", KEY]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment(night)})
    give_up = time.monotonic() + 15
    while not ready.exists():
        assert process.poll() is None, "the sandbox model did not start"
        assert time.monotonic() < give_up, "the sandbox model did not start in time"
        time.sleep(0.02)
    url = ready.read_text().strip()
    return Sandbox(process, url, log, ModelClient(url, KEY, "sandbox-1"))


@pytest.fixture
def sandbox(tmp_path: Path, request: pytest.FixtureRequest, night: Night) -> Iterator[Sandbox]:
    """With another rate than the module's night where a test asks for one."""
    sandbox = start(tmp_path, replace(night, rate=getattr(request, "param", night.rate)))
    yield sandbox
    sandbox.client.close()
    sandbox.process.terminate()
    sandbox.process.wait(5)


def insist(ask: Callable[[], T]) -> T:
    """As a job would: again after what passes, waiting for limits."""
    for _ in range(MOST_FAULTS + 1):
        try:
            return ask()
        except ModelRateLimited as limited:
            clock.sleep(limited.after)
        except ModelUnavailable:
            continue
    raise AssertionError("the step met more faults than there should be")


def prepare(client: ModelClient, run: str) -> tuple[list[ModelStep], list[dict[str, Any]]]:
    """A whole agent run, every tool answering the same."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": '{"task": "VAT return", "account_id": 17}'}]
    steps: list[ModelStep] = []

    def turn() -> ModelStep:
        return client.step(messages, TOOLS, run=run, step=str(len(steps)))

    while not steps or steps[-1].tool_calls:
        steps.append(insist(turn))
        messages += [steps[-1].message(), *(call.result('{"balance": 4}') for call in steps[-1].tool_calls)]
    return steps, messages


def test_three_hundred_requests_come_through_whatever_the_weather(sandbox: Sandbox) -> None:
    client = sandbox.client

    def work(number: int) -> None:
        run = f"attachment:{number}"
        fields = insist(lambda: client.extract_fields(RECEIPT, run=run, step="fields"))
        assert (fields.date, fields.gross_cents, fields.vat_cents) == (date(2026, 3, 1), 1234, 197)
        assert fields.merchant == "Kiosk Ahlers e.K."
        words = f"Stadtwerke Abschlag Strom {number}"
        assert insist(lambda: client.categorize(words, -5000, "EUR", CATEGORIES, run=run, step="sort")) == "Energy"

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(150)))

    lines = sandbox.lines()
    good = [line for line in lines if line["status"] == 200 and line["fault"] is None]
    assert Counter(line["kind"] for line in good) == {"extract": 150, "categorize": 150}
    faults = Counter(line["fault"] for line in lines if line["fault"])
    assert faults.keys() == set(Fault), "with this seed every fault is met"
    assert len(lines) == 300 + faults.total()
    assert max(Counter((line["run"], line["step"]) for line in lines).values()) <= MOST_FAULTS + 1
    assert all(line["attempt"] == 1 for line in lines if line["status"] in (429, 500))
    assert all(line["prompt_tokens"] > 50 and line["completion_tokens"] > 2 for line in good)


def test_an_agents_run_calls_one_to_three_offered_tools_and_then_answers(sandbox: Sandbox) -> None:
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda number: prepare(sandbox.client, f"agent_run:{number}"), range(12)))
    called: defaultdict[int, int] = defaultdict(int)
    for steps, _ in runs:
        *before, last = steps
        names = [call.name for step in before for call in step.tool_calls]
        called[len(names)] += 1
        assert len(set(names)) == len(names) == len(before)
        for step in before:
            (call,) = step.tool_calls
            assert call.arguments["account_id"] == 17
            assert call.arguments["currency"] in ("EUR", "GBP")
            assert date.fromisoformat(call.arguments["since"]).year == 2026
        assert last.answer == "OK. " + " ".join(['{"balance": 4}'] * len(names))
    assert called.keys() == {1, 2, 3}
    again, _ = prepare(sandbox.client, "agent_run:3")
    assert [c.name for s in again for c in s.tool_calls] == [c.name for s in runs[3][0] for c in s.tool_calls]


def test_without_tools_the_agent_answers_at_once(sandbox: Sandbox) -> None:
    asked = [{"role": "user", "content": '{"question": "Which category is this?", "text": "Abschlag Strom"}'}]
    assert insist(lambda: sandbox.client.step(asked, [], run="agent_run:1", step="1")).answer == "Energy"
    asked = [{"role": "user", "content": "Check this."}]
    answer = insist(lambda: sandbox.client.step(asked, [], run="agent_run:2", step="1")).answer
    assert answer is not None
    assert answer.startswith("OK")


@pytest.mark.parametrize("sandbox", [100.0], indirect=True)  # slow enough for the clients to be faster
def test_at_most_ten_answers_are_in_the_making_and_the_others_wait_in_order(sandbox: Sandbox) -> None:
    def ask(number: int) -> None:
        insist(lambda: sandbox.client.categorize("Miete", -1, "EUR", CATEGORIES, run=f"burst:{number}", step="sort"))

    with ThreadPoolExecutor(40) as pool:
        list(pool.map(ask, range(80)))
    spans, waits = [], []
    for line in sandbox.lines():
        if line["latency"]:
            end = datetime.fromisoformat(line["time"])
            began = end - timedelta(seconds=line["latency"])
            spans.append((began, end - timedelta(milliseconds=2)))  # the log rounds
            waits.append((began - timedelta(seconds=line["queued"]), began))
    assert max(sum(start <= began < end for start, end in spans) for began, _ in spans) == AT_ONCE
    assert sum(began - came > timedelta(seconds=5) for came, began in waits) > 20
    overtaken = sum(later[1] < earlier[1] - timedelta(seconds=0.5) for earlier, later in pairwise(sorted(waits)))
    assert overtaken <= 2, "a line's instant is taken after its latency; a busy machine may come between"


def test_a_wrong_key_and_a_request_that_makes_no_sense_are_refused(sandbox: Sandbox) -> None:
    stranger = ModelClient(sandbox.url, "wrong", "sandbox-1")
    with pytest.raises(ModelRefused, match="Incorrect API key"):
        stranger.categorize("Miete", -1, "EUR", CATEGORIES, run="r", step="s")
    stranger.close()
    call = {"id": "c", "type": "function", "function": {"name": "balances", "arguments": "{}"}}
    unanswered = [{"role": "assistant", "tool_calls": [call]}]
    with pytest.raises(ModelRefused, match=r"type invalid_request_error \(400\)"):
        sandbox.client.step(unanswered, TOOLS, run="r", step="s")
    assert [(line["status"], line["fault"]) for line in sandbox.lines()] == [(401, "key"), (400, "request")]
    assert httpx.get(f"{sandbox.url}/v1/models").status_code == 401
    listed = httpx.get(f"{sandbox.url}/v1/models", headers={"authorization": f"Bearer {KEY}"}).json()
    assert [model["id"] for model in listed["data"]] == ["sandbox-1"]


def test_sigterm_ends_the_server_at_once_though_requests_are_in_the_making(sandbox: Sandbox) -> None:
    with ThreadPoolExecutor(30) as pool:
        for number in range(30):
            pool.submit(sandbox.client.extract_fields, RECEIPT, run=f"attachment:{number}", step="fields")
        give_up = time.monotonic() + 10
        while not sandbox.log.exists() or not sandbox.lines():
            assert time.monotonic() < give_up
            time.sleep(0.01)
        sandbox.process.terminate()
        assert sandbox.process.wait(2) == 0


def test_the_weather_has_the_shares_and_the_tail_that_were_seen_in_production() -> None:
    weather = Weather(SEED)
    seen = [weather.outlook(f"run:{number}", "1", has_json=True) for number in range(40_000)]
    seconds = sorted(outlook.latency.total_seconds() for outlook in seen)
    assert math.isclose(statistics.median(seconds), 5.5, rel_tol=0.03)
    assert math.isclose(seconds[int(len(seconds) * 0.99)], 35, rel_tol=0.1)
    assert 300 < seconds[-1] < 660
    faults = Counter(outlook.fault for outlook in seen)
    for fault, share in ((Fault.LIMIT, LIMITS), (Fault.FAILURE, FAILURES), (Fault.MALFORMED, MALFORMED)):
        assert math.isclose(faults[fault] / len(seen), share, rel_tol=0.2)


def test_the_weather_is_the_same_in_any_order_and_never_bad_more_than_twice_a_step() -> None:
    forwards, backwards = Weather(SEED), Weather(SEED)
    runs = [f"run:{number}" for number in range(3_000)]
    first = {run: forwards.outlook(run, "1", has_json=True) for run in runs}
    assert first == {run: backwards.outlook(run, "1", has_json=True) for run in reversed(runs)}
    for run in runs:
        faults = [first[run].fault, *(forwards.outlook(run, "1", has_json=True).fault for _ in range(40))]
        assert sum(fault is not None for fault in faults) <= MOST_FAULTS
        after_malformed = [later for fault, later in pairwise(faults) if fault is Fault.MALFORMED]
        assert not any(after_malformed)
