"""The model client against scripted answers over real HTTP: repairs, refusals, timeouts, agent turns.

Whether it gets on with a whole model is in `test_sandbox_model.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from books.model import (
    ModelAnswerInvalid,
    ModelClient,
    ModelRateLimited,
    ModelRefused,
    ModelUnavailable,
    Usage,
)
from fleet import deadline
from fleet.clock import Night, clock
from fleet.errors import DeadlineExceeded, RetryLater

ROOT = Path(__file__).parents[2]
FIELDS = {"merchant": "Kiosk", "date": "2026-03-01", "gross": "12.34", "vat": None, "currency": "EUR"}
TOOL = {"type": "function", "function": {"name": "balance", "parameters": {"type": "object", "properties": {}}}}
ASKED = [{"role": "user", "content": "What stands on the account?"}]


class ScriptedModel(ThreadingHTTPServer):
    """Gives the scripted answers in their order; remembers what was asked. An empty script leaves a request open."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[tuple[int, dict[str, str], bytes]] = []
        self.asked: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.ended = threading.Event()

    def says(self, *contents: str | None) -> None:
        self.script += [(200, {}, completion({"content": content})) for content in contents]

    def calls(self, name: str, arguments: str) -> None:
        call = {
            "id": f"call_{len(self.script)}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        self.script.append((200, {}, completion({"content": None, "tool_calls": [call]})))

    def refuses(self, status: int, error: dict[str, Any] | None = None, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.script.append((status, named, json.dumps({"error": error or {"message": "No."}}).encode()))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gave up is what some tests are about; anything else fails them by itself."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes: the second would wait 40 ms for an ACK
    server: ScriptedModel

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append(({name.lower(): value for name, value in self.headers.items()}, body))
        if not self.server.script:
            self.server.ended.wait(10)
            return
        status, headers, answer = self.server.script.pop(0)
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(answer)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: what was asked is in `asked`."""


def completion(message: dict[str, Any]) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return json.dumps(body).encode()


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    server = ScriptedModel()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.ended.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def client(model: ScriptedModel) -> Iterator[ModelClient]:
    made = ModelClient(f"http://127.0.0.1:{model.server_address[1]}", "key", "m", timeout=timedelta(seconds=5))
    yield made
    made.close()


def extract(client: ModelClient) -> Any:
    return client.extract_fields("Kiosk 12,34", run="attachment:7", step="fields")


def test_importing_the_package_loads_neither_the_sdk_nor_pydantic() -> None:
    code = "import sys, books.model; print(*{'openai', 'httpx', 'httpx2', 'pydantic'} & sys.modules.keys())"
    printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True).stdout
    assert printed == b"\n"


def test_fields_come_from_the_answer_and_the_request_names_run_and_step(
    model: ScriptedModel, client: ModelClient
) -> None:
    model.says(json.dumps(FIELDS))
    fields = extract(client)
    assert (fields.merchant, fields.date, fields.gross_cents) == ("Kiosk", date(2026, 3, 1), 1234)
    ((headers, body),) = model.asked
    assert (headers["x-run"], headers["x-step"], headers["authorization"]) == ("attachment:7", "fields", "Bearer key")
    assert body["response_format"]["json_schema"]["strict"]
    assert "Kiosk 12,34" in body["messages"][-1]["content"]


@pytest.mark.parametrize("bad", ['{"merchant": "Kio', "", None, "[]", json.dumps({**FIELDS, "gross": "12.345"})])
def test_an_answer_that_cannot_be_booked_is_sent_back_once_saying_why(
    model: ScriptedModel, client: ModelClient, bad: str | None
) -> None:
    model.says(bad, json.dumps(FIELDS))
    assert extract(client).gross_cents == 1234
    *_, answer, complaint = model.asked[1][1]["messages"]
    assert answer == {"role": "assistant", "content": bad or ""}
    assert complaint["role"] == "user"
    assert complaint["content"].startswith("That cannot be used: ")
    assert model.asked[1][0]["x-step"] == "fields"


def test_after_one_repair_the_answer_is_invalid_and_the_error_says_what_was_found(
    model: ScriptedModel, client: ModelClient
) -> None:
    model.says('{"merchant": "Kio', json.dumps({**FIELDS, "gross": "much"}))
    with pytest.raises(ModelAnswerInvalid, match=r"attachment:7, step fields: .*gross \(.*4 char.*also when asked"):
        extract(client)
    assert len(model.asked) == 2


def test_a_category_that_was_not_offered_is_sent_back(model: ScriptedModel, client: ModelClient) -> None:
    model.says('{"category": "Yachts"}', '{"category": "Rent"}')
    found = client.categorize("Miete März", -124_050, "EUR", ("Rent", "Other"), run="transaction:1", step="category")
    assert found == "Rent"
    asked = model.asked[1][1]
    assert "-1240.50 EUR" in asked["messages"][1]["content"]
    assert "should be one of those offered" in asked["messages"][-1]["content"]
    assert asked["response_format"]["json_schema"]["schema"]["properties"]["category"]["enum"] == ["Rent", "Other"]


def test_a_turn_calls_tools_or_answers_and_the_next_turn_goes_on_with_it(
    model: ScriptedModel, client: ModelClient
) -> None:
    model.calls("balance", '{"account": 3}')
    model.says("12.34 EUR")
    first = client.step(ASKED, [TOOL], run="agent_run:1", step="1")
    (call,) = first.tool_calls
    assert (call.name, call.arguments, first.answer, first.usage) == ("balance", {"account": 3}, None, Usage(10, 2))
    second = client.step([*ASKED, first.message(), call.result("1234")], [TOOL], run="agent_run:1", step="2")
    assert (second.tool_calls, second.answer) == ((), "12.34 EUR")
    _, repeated, result = model.asked[1][1]["messages"]
    assert repeated["tool_calls"][0]["function"] == {"name": "balance", "arguments": '{"account": 3}'}
    assert result == {"role": "tool", "tool_call_id": call.id, "content": "1234"}


def test_a_call_of_an_unknown_tool_or_with_broken_arguments_is_sent_back_and_paid_for(
    model: ScriptedModel, client: ModelClient
) -> None:
    model.calls("balance", '{"account"')
    model.calls("balance", "{}")
    step = client.step(ASKED, [TOOL], run="agent_run:1", step="1")
    assert step.tool_calls[0].arguments == {}
    assert step.usage == Usage(20, 4)
    _, turn, result = model.asked[1][1]["messages"]
    assert turn["tool_calls"][0]["function"]["arguments"] == '{"account"'
    assert result["role"] == "tool"
    assert result["tool_call_id"] == turn["tool_calls"][0]["id"]
    model.calls("launch", "{}")
    model.says("")
    with pytest.raises(ModelAnswerInvalid, match="neither a tool call nor an answer"):
        client.step(ASKED, [TOOL], run="agent_run:1", step="2")
    assert "not offered; the tools are balance" in model.asked[-1][1]["messages"][-1]["content"]


def test_a_limit_tells_in_night_seconds_or_by_date_when_to_try_again(model: ScriptedModel, client: ModelClient) -> None:
    clock.set_night(Night(origin=datetime(2026, 3, 2, tzinfo=UTC), anchor=datetime.now(UTC), rate=240.0))
    try:
        model.refuses(429, retry_after="17")
        model.refuses(429, retry_after=format_datetime(clock.now() + timedelta(minutes=30), usegmt=True))
        model.refuses(429, retry_after="soon")
        waits = []
        for _ in range(3):
            with pytest.raises(ModelRateLimited, match="attachment:7") as caught:
                extract(client)
            assert isinstance(caught.value, RetryLater)
            waits.append(caught.value.after)
    finally:
        clock.set_night(None)
    assert waits[0] == timedelta(seconds=17)
    assert timedelta(minutes=15) < waits[1] <= timedelta(minutes=30)
    assert waits[2] == timedelta(minutes=1)


@pytest.mark.parametrize(
    ("status", "error", "named"),
    [
        (500, None, ModelUnavailable),
        (503, None, ModelUnavailable),
        (408, None, ModelUnavailable),
        (401, {"message": "Incorrect API key provided."}, ModelRefused),
        (400, None, ModelRefused),
        (404, None, ModelRefused),
        (429, {"message": "You exceeded your current quota.", "code": "insufficient_quota"}, ModelRefused),
    ],
)
def test_every_refusal_has_its_name_and_is_not_tried_again(
    model: ScriptedModel, client: ModelClient, status: int, error: dict[str, Any] | None, named: type[Exception]
) -> None:
    model.refuses(status, error)
    with pytest.raises(named, match=rf"run attachment:7, step fields: .*\({status}\)"):
        extract(client)
    assert len(model.asked) == 1


def test_a_key_that_a_refusal_repeats_is_in_no_message_and_no_traceback(model: ScriptedModel) -> None:
    key = "sk-marked-7Qx"
    client = ModelClient(f"http://127.0.0.1:{model.server_address[1]}", key, "m")
    model.refuses(401, {"message": f"{'x' * 250} Incorrect API key provided: {key}{key}, {key}"})
    with pytest.raises(ModelRefused, match="Incorrect API key provided: ") as caught:
        extract(client)
    client.close()
    shown = "".join(traceback.format_exception(caught.value))
    assert "sk-ma" not in shown and "7Qx" not in shown


RECEIPT = "Erika Mustermann, Hebamme\nWochenbett 777,77 EUR"
ON_IT = ("Erika", "Mustermann", "Hebamme", "Wochenbett", "777")


def assert_nothing_of_the_receipt(error: BaseException) -> None:
    shown = "".join(traceback.format_exception(error))
    assert [word for word in ON_IT if word.lower() in shown.lower()] == []


@pytest.mark.parametrize(
    "answer",
    [
        '{"merchant": "Erika Mustermann, Hebamme", "gross": 777,77',
        RECEIPT,
        json.dumps([RECEIPT]),
        json.dumps(RECEIPT),
        json.dumps({**FIELDS, "merchant": [RECEIPT]}),
        json.dumps({**FIELDS, "merchant": RECEIPT * 9}),
        json.dumps({**FIELDS, "date": "Wochenbett"}),
        json.dumps({**FIELDS, "gross": "Erika 777,77"}),
        json.dumps({**FIELDS, "currency": "Erika"}),
        json.dumps({**FIELDS, "gross": "777.77", "vat": "777.77"}),
    ],
)
def test_no_word_of_a_receipt_is_in_the_error_of_an_answer_that_cannot_be_used(
    model: ScriptedModel, client: ModelClient, answer: str
) -> None:
    model.says(answer, answer)
    with pytest.raises(ModelAnswerInvalid, match="The answer") as caught:
        client.extract_fields(RECEIPT, run="attachment:7", step="fields")
    assert_nothing_of_the_receipt(caught.value)


def test_no_word_of_a_transaction_is_in_the_error_of_a_category_that_was_not_offered(
    model: ScriptedModel, client: ModelClient
) -> None:
    model.says(*['{"category": "Erika Mustermann"}'] * 2)
    with pytest.raises(ModelAnswerInvalid, match="one of those offered") as caught:
        client.categorize(RECEIPT, -1, "EUR", ("Rent",), run="transaction:1", step="category")
    assert_nothing_of_the_receipt(caught.value)


@pytest.mark.parametrize(("status", "named"), [(400, ModelRefused), (413, ModelRefused), (422, ModelRefused)])
def test_a_refusal_that_repeats_the_receipt_says_only_how_the_api_calls_it(
    model: ScriptedModel, client: ModelClient, status: int, named: type[Exception]
) -> None:
    said = f"1 validation error: messages.1.content: {RECEIPT!r} is not allowed"
    called = {"code": "invalid_value", "type": "invalid_request_error", "param": "messages[1].content"}
    model.refuses(status, {"message": said, **called})
    model.refuses(status, {"message": said, "code": RECEIPT, "type": 7, "param": [RECEIPT]})
    told = r"code invalid_value, type invalid_request_error, param messages\[1\]\.content \(4"
    for match in (told, rf"run attachment:7, step fields: [A-Z][A-Za-z ]+ \({status}\)"):
        with pytest.raises(named, match=match) as caught:
            client.extract_fields(RECEIPT, run="attachment:7", step="fields")
        assert_nothing_of_the_receipt(caught.value)


@pytest.mark.parametrize("status", [401, 402, 403, 404, 429, 500, 503])
def test_a_refusal_for_the_key_a_limit_or_a_fault_of_its_own_is_told_in_the_apis_words(
    model: ScriptedModel, client: ModelClient, status: int
) -> None:
    model.refuses(status, {"message": "The project is archived.", "code": "archived"})
    with pytest.raises((ModelRefused, ModelUnavailable, ModelRateLimited), match=r"is archived\., code archived \("):
        extract(client)


@pytest.mark.parametrize(
    "answer",
    [(b"<html>proxy</html>", "text/html"), (b"{nothing", "application/json"), (b'{"choices": []}', "application/json")],
)
def test_an_answer_that_is_no_completion_is_invalid_at_once(
    model: ScriptedModel, client: ModelClient, answer: tuple[bytes, str]
) -> None:
    model.script.append((200, {"content-type": answer[1]}, answer[0]))
    with pytest.raises(ModelAnswerInvalid, match="check the base URL"):
        extract(client)
    assert len(model.asked) == 1


def test_a_silent_model_is_unavailable_after_the_timeout(model: ScriptedModel) -> None:
    client = ModelClient(f"http://127.0.0.1:{model.server_address[1]}", "key", "m", timeout=timedelta(seconds=0.2))
    with pytest.raises(ModelUnavailable, match="Timeout"):
        extract(client)
    client.close()


def test_nobody_listening_is_unavailable() -> None:
    client = ModelClient("http://127.0.0.1:9", "key", "m")
    with pytest.raises(ModelUnavailable, match="ConnectError"):
        extract(client)
    client.close()


def test_a_call_ends_with_the_jobs_soft_budget_and_not_later(model: ScriptedModel, client: ModelClient) -> None:
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        deadline.run_within(timedelta(seconds=0.4), extract, client)
    assert time.monotonic() - started < 2
    assert len(model.asked) == 1


def test_without_a_key_no_client_is_made() -> None:
    with pytest.raises(ModelRefused, match="no key"):
        ModelClient("https://api.openai.com/v1", "", "m")
