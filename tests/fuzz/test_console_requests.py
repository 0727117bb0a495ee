"""Whatever is asked of the console, it answers without a 500, and changes nothing without role and form token."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_from_bytes, urlencode

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import given as over
from hypothesis import strategies as st
from sqlalchemy import text

from fleet.app import App
from fleet.broker import FleetBroker
from fleet.console import tokens
from fleet.console.actions import ACTIONS
from fleet.console.desk import Desk
from fleet.console.live import MOST_STREAMS
from fleet.console.pages import PAGES
from fleet.console.sessions import COOKIE, Sessions, Visitor
from fleet.console.site import make_app
from fleet.storage import database
from tests.conftest import Environment
from tests.console import staged
from tests.console.conftest import app as app
from tests.console.conftest import broker as broker
from tests.fuzz.asgi import Answer, Ask, ask

READER, OPERATOR = Visitor("rea", "read", "a" * 32), Visitor("ann", "operate", "b" * 32)
WHY = "the bank is closed today"
ENTRIES, QUEUES = ("nightly_audit", "categorize_uncategorized_transactions"), ("charging", "agent_batch")
FIELDS = (
    *("queue", "actor", "reason", "older", "newer", "argument", "at", "do", "id", "shown_at", "hours", "because"),
    *("died", "what", "said", "next", "page", "token", "form_token", "night", "date", "lane", "before"),
)


class Door:
    """A console that asks for a login, who may come in, and whether anything changed."""

    def __init__(self, app: App, broker: FleetBroker, client: redis.Redis, runner: asyncio.Runner) -> None:
        self._runner = runner
        lines = ";".join(tokens.draw(name, role)[1] for name, role in (("rea", "read"), ("ann", "operate")))  # type: ignore[arg-type]
        self.sessions = Sessions(login=True)
        self.app = make_app(Desk(app, broker, self.sessions, tokens.read(lines, None)))
        self.open = make_app(Desk(app, broker, Sessions(login=False), ()))
        self._client, self._namespace = client, broker.namespace
        self.before = self.state()

    def ask(self, application: Any, one: Ask) -> Answer:
        return ask(application, one, self._runner)

    def cookie(self, visitor: Visitor) -> bytes:
        value: Any = self.sessions._signer.dumps([visitor.name, visitor.role, visitor.session])
        return f"{COOKIE}={value}".encode()

    def state(self) -> dict[bytes, object]:
        """All that stands in the namespace, and how many rows the audit has."""
        found = sorted(self._client.scan_iter(f"{self._namespace}:*", count=1000))
        with self._client.pipeline(transaction=False) as pipe:
            for key in found:
                pipe.dump(key)
            held: dict[bytes, object] = dict(zip(found, pipe.execute(), strict=True))
        with database().connect() as connection:
            held[b"audit"] = connection.scalar(text("SELECT count(*) FROM fleet_audit"))
        return held


@pytest.fixture
def door(app: App, broker: FleetBroker, environment: Environment, redis_client: redis.Redis) -> Iterator[Door]:
    staged.waiting(broker, "charging", 3, age=staged.MINUTE)
    staged.dead_letters(broker, "charging", 3, "charge_customer", "failed", "ValueError: no")
    staged.alerts_open(broker)
    with asyncio.Runner() as runner:
        yield Door(app, broker, redis_client, runner)


NUMBERS = st.integers(-(2**70), 2**70).map(str) | st.sampled_from(
    ["nan", "inf", "-1e309", "1.5", "०", "9" * 5000, "1e8"]
)
WORDS = st.sampled_from(
    [*ENTRIES, *QUEUES, "requeue", "discard", WHY, "/", "//evil.example", "charging:3", "2026-02-30"]
)
VALUES = WORDS | NUMBERS | st.text(max_size=40) | st.binary(max_size=40).map(lambda raw: raw.decode("latin-1"))
PAIRS = st.lists(st.tuples(st.sampled_from(FIELDS) | st.text(max_size=8), VALUES), max_size=8)
KNOWN = st.sampled_from(
    [*(page.path for page in PAGES), *ACTIONS, "/login", "/logout", "/healthz", "/static/console.css"]
)
SEGMENTS = st.sampled_from([*ENTRIES, *QUEUES, "..", "%2e%2e%2f", "", "%00", "%ff%fe", "a" * 3000]) | st.binary(
    max_size=12
).map(quote_from_bytes)


@st.composite
def paths(draw: st.DrawFn) -> bytes:
    """A path of the console's with its names filled in, or one that nobody has."""
    known = draw(KNOWN)
    parts = [draw(SEGMENTS) if part.startswith("{") else part for part in known.split("/")]
    if draw(st.integers(0, 5)) == 0:
        parts.insert(draw(st.integers(0, len(parts))), draw(SEGMENTS))
    return "/".join(parts).encode("ascii", "ignore")


@st.composite
def acted_paths(draw: st.DrawFn) -> bytes:
    """The path of an act, mostly on an entry or a queue that is there."""
    names = st.sampled_from([*ENTRIES, *QUEUES]) | SEGMENTS
    known = draw(st.sampled_from([*ACTIONS]))
    parts = [draw(names) if part.startswith("{") else part for part in known.split("/")]
    return "/".join(parts).encode("ascii", "ignore")


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A content type and a body, which need not fit."""
    form = urlencode(draw(PAIRS), errors="surrogatepass").encode()
    kind = draw(
        st.sampled_from(
            [
                b"application/x-www-form-urlencoded",
                b"application/x-www-form-urlencoded; charset=utf-16",
                b"multipart/form-data; boundary=b",
                b"multipart/form-data",
                b"application/json",
                b"\xff/\x00",
            ]
        )
    )
    file = b'--b\r\nContent-Disposition: form-data; name="f"; filename="x"\r\n\r\n' + form + b"\r\n--b--\r\n"
    return kind, draw(st.sampled_from([form, file, b"&" * 200, b"a=" + b"x" * 70_000]) | st.binary(max_size=200))


def length_of(body: bytes) -> st.SearchStrategy[bytes]:
    right = str(len(body)).encode()
    return st.just(right) | st.just(right) | st.sampled_from([b"", b"-1", b"0", b"9" * 400, b"1e3", "١".encode()])


@st.composite
def asks(draw: st.DrawFn) -> tuple[Ask, str, bool]:
    """A request; whose cookie it has, and whether the form's token of that session is put into it."""
    method = draw(st.sampled_from(["GET", "GET", "POST", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "BREW"]))
    who = draw(st.sampled_from(["nobody", "forged", "reader", "operator"]))
    headers = [(b"host", draw(st.sampled_from([b"127.0.0.1:8310", b"evil.example", b"[::1", b"\xff", b""])))]
    for name, value in draw(st.lists(st.sampled_from(HEADERS), max_size=3)):
        headers.append((name, value))
    body: tuple[bytes, ...] = ()
    if method not in ("GET", "HEAD"):
        kind, whole = draw(bodies())
        headers += [(b"content-type", kind), (b"content-length", draw(length_of(whole)))]
        cut = draw(st.integers(0, len(whole)))
        body = (whole[:cut], whole[cut:])
    leaves = draw(st.none() | st.integers(0, 3))
    query = draw(PAIRS.map(lambda pairs: urlencode(pairs, errors="surrogatepass").encode()) | st.binary(max_size=30))
    made = Ask(method, draw(paths()), query, tuple(headers), body, leaves, draw(st.sampled_from(["2.3", "2.4"])))
    return made, who, draw(st.booleans())


HEADERS = [
    *[(b"origin", b"https://evil.example"), (b"origin", b"null"), (b"sec-fetch-site", b"cross-site")],
    *[(b"x-forwarded-for", b"10.0.0.1"), (b"x-forwarded-proto", b"https"), (b"forwarded", b"for=x")],
    *[(b"cookie", b"\xff=\xfe; ;;="), (b"cookie", b"fleet_console=" + b"a" * 5000), (b"range", b"bytes=9-1,-")],
    *[(b"if-modified-since", b"yesterday"), (b"accept-encoding", b"\x00"), (b"content-encoding", b"gzip")],
    *[(b"transfer-encoding", b"chunked"), (b"expect", b"100-continue"), (b"x-http-method-override", b"POST")],
]
QUICK = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@QUICK
@over(asks())
def test_no_request_is_answered_by_a_500_or_changes_anything(door: Door, given: tuple[Ask, str, bool]) -> None:
    one, who, with_token = given
    headers, body = list(one.headers), list(one.body)
    if who in ("reader", "operator"):
        visitor = READER if who == "reader" else OPERATOR
        headers.append((b"cookie", door.cookie(visitor)))
        if with_token and body:  # the reader's own, and the operator's of another session: neither may act
            known = door.sessions.form_token(READER)
            body[0] = f"form_token={known}&because=the+bank+is+closed&".encode() + body[0]
            whole = str(sum(map(len, body))).encode()
            headers = [(name, value) for name, value in headers if name != b"content-length"]
            headers.append((b"content-length", whole))
    elif who == "forged":
        headers.append((b"cookie", door.cookie(OPERATOR)[:-3] + b"abc"))
    made = Ask(one.method, one.raw_path, one.query, tuple(headers), tuple(body), one.leaves_after, one.spec)
    for application in (door.app, door.open):
        answer = door.ask(application, made)
        assert answer.status < 500, (made, answer.body[:300])
        assert answer.status or made.leaves_after is not None
        _require_guarded(answer)
    assert door.state() == door.before, made


@QUICK
@over(path=acted_paths(), pairs=PAIRS)
def test_whatever_an_operator_fills_in_is_no_500_and_what_it_changes_stands_in_the_audit(
    door: Door, path: bytes, pairs: list[tuple[str, str]]
) -> None:
    given = [("because", WHY), ("form_token", door.sessions.form_token(OPERATOR))]
    drawn = [pair for pair in pairs if pair[0] != "form_token"]
    body = urlencode([*given, *drawn], errors="surrogatepass").encode()
    headers = (
        *((b"host", b"127.0.0.1:8310"), (b"cookie", door.cookie(OPERATOR))),
        *((b"content-type", b"application/x-www-form-urlencoded"), (b"content-length", str(len(body)).encode())),
    )
    before = door.state()
    answer = door.ask(door.app, Ask("POST", path, headers=headers, body=(body,)))
    assert 300 <= answer.status < 500, (path, pairs, answer.body[:300])
    assert answer.status not in (401, 403), "an operator with the form's token is let in"
    after = door.state()
    audited = after.pop(b"audit") != before.pop(b"audit")
    assert audited or after == before, (path, pairs)


def _require_guarded(answer: Answer) -> None:
    if answer.status:
        assert (
            answer.headers["x-frame-options"] == "DENY"
            and "default-src 'none'" in answer.headers["content-security-policy"]
        )


def test_the_same_request_with_the_role_and_the_token_does_change_something(door: Door) -> None:
    given = {"because": WHY, "form_token": door.sessions.form_token(OPERATOR)}
    body = urlencode(given).encode()
    headers = (
        *((b"host", b"127.0.0.1:8310"), (b"cookie", door.cookie(OPERATOR))),
        *((b"content-type", b"application/x-www-form-urlencoded"), (b"content-length", str(len(body)).encode())),
    )
    assert (
        door.ask(door.app, Ask("POST", b"/schedule/nightly_audit/pause", headers=headers, body=(body,))).status == 303
    )
    assert door.state() != door.before


@pytest.mark.parametrize("spec", ["2.3", "2.4"])
def test_streams_whose_clients_left_leave_room_for_others(door: Door, spec: str) -> None:
    headers = ((b"host", b"127.0.0.1:8310"), (b"cookie", door.cookie(READER)))
    for number in range(MOST_STREAMS + 2):
        one = Ask("GET", b"/live", b"page=/beats", headers, leaves_after=1 + number % 2, spec=spec)
        assert door.ask(door.app, one).status == 200
