"""The bank client against scripted answers over real HTTP: tokens, pages, timeouts.

How rows are read is in `test_bank_answers.py`, what each refusal is called in `test_bank_refusals.py`,
whether it gets on with a whole bank in `test_sandbox_bank.py`.
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from types import FrameType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from books.bank import (
    BankAnswerInvalid,
    BankClient,
    BankRefused,
    BankUnavailable,
    ConsentExpired,
    RateLimited,
)
from fleet import deadline
from fleet.clock import clock
from fleet.errors import DeadlineExceeded

ACCOUNT = "7e944232-bda9-40bc-b784-660c7ab5fe78"
DAY = date(2026, 3, 2)
Reply = tuple[int, dict[str, str], bytes]


class ScriptedBank(ThreadingHTTPServer):
    """Hands out numbered tokens and answers everything else with `reply`; remembers what was asked."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply: Callable[[str, dict[str, str], str], Reply] = lambda *_: (404, {}, b"{}")
        self.refresh_status, self.issue_status = 200, 200
        self.refused = {"summary": "Invalid token", "detail": "Token is invalid or expired"}
        self.hold: threading.Event | None = None
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.tokens = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, body: object, status: int = 200) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.reply = lambda *_: (status, {}, raw)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gave up is what some tests are about; anything else fails them by itself."""

    def count(self, path: str) -> int:
        return sum(1 for asked, _ in self.asked if asked == f"/api/v2/{path}")

    def issue(self, kind: str) -> Reply:
        if self.hold:
            self.hold.wait(10)
        status = self.refresh_status if kind == "refresh" else self.issue_status
        if status != 200:
            return status, {}, json.dumps(self.refused).encode()
        self.tokens += 1
        body: dict[str, Any] = {"access": f"token-{self.tokens}", "access_expires": 86_400}
        if kind == "new":
            body |= {"refresh": "refresh-me", "refresh_expires": 2_592_000}
        return 200, {}, json.dumps(body).encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes: the second would wait 40 ms for an ACK
    server: ScriptedBank

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        with self.server.lock:
            self.server.asked.append((parts.path, query or (json.loads(body) if body else {})))
            issuing = "/token/" in parts.path
            if issuing:
                status, headers, raw = self.server.issue(parts.path.rstrip("/").rsplit("/", 1)[1])
        if not issuing:
            status, headers, raw = self.server.reply(parts.path, query, self.headers.get("authorization", ""))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing to the terminal."""


@pytest.fixture
def bank() -> Iterator[ScriptedBank]:
    with ScriptedBank() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def client(bank: ScriptedBank) -> Iterator[BankClient]:
    client = BankClient(bank.url, "id", "key", timeout=timedelta(seconds=5))
    yield client
    client.close()


def test_a_secret_that_the_bank_repeats_is_in_no_message_and_no_traceback(bank: ScriptedBank) -> None:
    client = BankClient(bank.url, "marked-id-7Qx", "marked-key-7Qx")

    def repeats(_path: str, _query: dict[str, str], authorization: str) -> Reply:
        return 403, {}, json.dumps({"summary": "Forbidden", "detail": f"{authorization} may not do that"}).encode()

    def refused() -> str:
        with pytest.raises((BankRefused, BankUnavailable)) as caught:
            client.balances(ACCOUNT)
        return "".join(traceback.format_exception(caught.value))

    bank.refused = {"summary": "No active account", "detail": "marked-id-7Qx with marked-key-7Qx: marked-key-7Qx"}
    bank.issue_status = 403
    assert "No active account: [removed]" in (shown := refused()) and "7Qx" not in shown
    bank.issue_status, bank.reply = 200, repeats
    assert "Bearer [removed] may not" in (shown := refused()) and "token-1" not in shown
    bank.refused, bank.refresh_status = {"detail": "refresh-me is none of ours"}, 403
    bank.reply = lambda *_: (401, {}, b'{"summary": "Invalid token"}')
    assert "[removed] is none of ours" in (shown := refused()) and "refresh-me" not in shown
    client.close()


def test_a_token_found_expired_by_many_threads_is_refreshed_once(bank: ScriptedBank, client: BankClient) -> None:
    barrier = threading.Barrier(8)
    valid = {"token-1"}

    def reply(_path: str, _query: dict[str, str], authorization: str) -> Reply:
        if authorization.removeprefix("Bearer ") in valid:
            return 200, {}, b'{"balances": []}'
        return 401, {}, b'{"summary": "Invalid token", "detail": "Token is invalid or expired", "status_code": 401}'

    bank.reply = reply
    client.balances(ACCOUNT)
    valid.clear()
    valid.add("token-2")

    def call() -> None:
        barrier.wait()
        client.balances(ACCOUNT)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(call) for _ in range(8)]:
            done.result()
    assert (bank.count("token/new/"), bank.count("token/refresh/")) == (1, 1)


def test_threads_that_waited_for_a_token_that_did_not_come_do_not_ask_again_one_by_one(
    bank: ScriptedBank, client: BankClient
) -> None:
    bank.issue_status, bank.hold = 503, threading.Event()

    def call() -> None:
        with pytest.raises(BankUnavailable, match="token"):
            client.balances(ACCOUNT)

    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(call) for _ in range(8)]
        give_up = clock.monotonic() + 10
        while sum(_waits_for_token(frame) for frame in sys._current_frames().values()) < 8:
            assert clock.monotonic() < give_up, "not all threads came to wait for the token"
        bank.hold.set()
        for done in calls:
            done.result()
    assert bank.count("token/new/") == 1


def _waits_for_token(frame: FrameType | None) -> bool:
    while frame is not None and not (frame.f_code.co_name == "_access" and "asked" in frame.f_locals):
        frame = frame.f_back
    return frame is not None


def test_a_revoked_refresh_token_means_logging_in_again(bank: ScriptedBank, client: BankClient) -> None:
    bank.reply = lambda _path, _query, authorization: (
        (200, {}, b'{"balances": []}')
        if authorization == "Bearer token-2"
        else (401, {}, b'{"summary": "Invalid token", "detail": "Token is invalid or expired", "status_code": 401}')
    )
    bank.refresh_status = 401
    assert client.balances(ACCOUNT) == ()
    assert bank.count("token/new/") == 2


def test_a_token_that_is_never_accepted_is_tried_twice_and_then_refused(bank: ScriptedBank, client: BankClient) -> None:
    bank.answer({"summary": "Invalid token", "detail": "Token is invalid or expired", "status_code": 401}, status=401)
    with pytest.raises(BankRefused, match=ACCOUNT):
        client.balances(ACCOUNT)
    assert bank.count(f"accounts/{ACCOUNT}/balances/") == 2


def test_requisitions_are_read_page_by_page(bank: ScriptedBank, client: BankClient) -> None:
    def reply(_path: str, query: dict[str, str], _authorization: str) -> Reply:
        offset, limit = int(query["offset"]), int(query["limit"])
        rows = [{"id": str(n), "institution_id": "GLS", "status": "LN", "accounts": [f"a{n}"]} for n in range(5)]
        more = "http://elsewhere.example/?offset=9" if offset + limit < 5 else None
        body = {"count": 5, "next": more, "previous": None, "results": rows[offset : offset + limit]}
        return 200, {}, json.dumps(body).encode()

    bank.reply = reply
    assert [found.accounts for found in client.requisitions(page_size=2)] == [(f"a{n}",) for n in range(5)]
    assert bank.count("requisitions/") == 3


def test_a_span_is_asked_for_in_windows_of_90_days_oldest_first_without_gaps(
    bank: ScriptedBank, client: BankClient
) -> None:
    bank.answer({"transactions": {"booked": [], "pending": []}, "last_updated": "2026-03-02"})
    since, until = date(2025, 6, 1), date(2026, 3, 2)
    pages = list(client.transactions(ACCOUNT, since, until))
    spans = [(page.since, page.until) for page in pages]
    assert spans[0][0] == since and spans[-1][1] == until
    assert all(later[0] == earlier[1] + timedelta(days=1) for earlier, later in pairwise(spans))
    assert all((last - first).days < 90 for first, last in spans)
    asked = [query for path, query in bank.asked if path.endswith("/transactions/")]
    assert asked == [{"date_from": str(first), "date_to": str(last)} for first, last in spans]


def test_the_apis_own_header_tells_when_a_limit_ends(bank: ScriptedBank, client: BankClient) -> None:
    bank.reply = lambda *_: (
        429,
        {"HTTP_X_RATELIMIT_ACCOUNT_SUCCESS_RESET": "120"},
        b'{"summary": "Rate limit exceeded"}',
    )
    with pytest.raises(RateLimited, match=f"{ACCOUNT}: Rate limit exceeded") as caught:
        client.balances(ACCOUNT)
    assert caught.value.after == timedelta(seconds=120)


def test_an_expired_consent_is_not_taken_for_an_expired_token(bank: ScriptedBank, client: BankClient) -> None:
    body = {"summary": "End User Agreement (EUA) 1a2b has expired", "detail": "EUA was valid for 90 days"}
    bank.answer({**body, "status_code": 401}, status=401)
    with pytest.raises(ConsentExpired, match=ACCOUNT):
        client.balances(ACCOUNT)
    assert bank.count(f"accounts/{ACCOUNT}/balances/") == 1


@pytest.mark.parametrize("body", [b'{"transactions": {"boo', b"", b"[]", b'{"transactions": {"booked": null}}', b"{}"])
def test_an_answer_of_another_shape_names_the_account(bank: ScriptedBank, client: BankClient, body: bytes) -> None:
    bank.answer(body)
    with pytest.raises(BankAnswerInvalid, match=ACCOUNT):
        list(client.transactions(ACCOUNT, DAY, DAY))


def test_an_error_page_that_is_no_json_is_an_unavailable_bank(bank: ScriptedBank, client: BankClient) -> None:
    bank.answer(b"<html>bad gateway</html>", status=502)
    with pytest.raises(BankUnavailable, match="Bad Gateway"):
        client.balances(ACCOUNT)


def test_a_silent_bank_is_given_up_after_the_timeout(bank: ScriptedBank) -> None:
    release = threading.Event()
    bank.reply = lambda *_: (200, {}, b"{}") if release.wait(10) else (500, {}, b"{}")
    client = BankClient(bank.url, "id", "key", timeout=timedelta(seconds=0.2))
    try:
        with pytest.raises(BankUnavailable, match="ReadTimeout"):
            client.balances(ACCOUNT)
    finally:
        release.set()
        client.close()


def test_a_call_that_the_soft_budget_cut_short_is_the_jobs_end_and_not_the_banks_fault(
    bank: ScriptedBank, client: BankClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, ends = threading.Event(), clock.monotonic() + 0.2
    bank.reply = lambda *_: (200, {}, b"{}") if release.wait(10) else (500, {}, b"{}")
    monkeypatch.setattr(deadline, "remaining", lambda: timedelta(seconds=max(0.0, ends - clock.monotonic())))
    try:
        with pytest.raises(DeadlineExceeded):
            client.balances(ACCOUNT)
    finally:
        release.set()


def test_a_bank_that_is_not_there_is_unavailable() -> None:
    client = BankClient("http://127.0.0.1:9", "id", "key")
    with pytest.raises(BankUnavailable, match="ConnectError"):
        client.balances(ACCOUNT)
    client.close()
