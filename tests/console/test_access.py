"""Who may see the console, who may act, and from where."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from fleet.audit import read
from fleet.broker import FleetBroker
from fleet.by_hand import paused
from fleet.console.guard import Guard
from fleet.console.login import TRIES, Tries
from fleet.console.pages import PAGES
from fleet.console.sessions import COOKIE, Sessions
from tests.console.conftest import LOCAL, Client, Given, form_token

ENTRY = "/schedule/nightly_audit"
WHY = "the bank is closed today"
OTHER = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}


def pause(client: TestClient, token: str = "", **more: str) -> int:
    return client.post(f"{ENTRY}/pause", data={"because": WHY, "form_token": token}, headers=more).status_code


@pytest.mark.parametrize("path", ["/", "/lanes", "/dead?queue=charging", ENTRY])
def test_without_a_session_every_page_leads_to_the_login_and_from_there_back(
    client: Client, given: Given, path: str
) -> None:
    asking = client(login=True)
    answer = asking.get(path)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/login?next=%2F")
    wanted = asking.get(answer.headers["location"])
    assert 'name="next"' in wanted.text
    entered = asking.post("/login", data={"token": given.reader, "next": path})
    assert entered.headers["location"] == path
    assert asking.get(path).status_code == 200


@pytest.mark.parametrize("host", ["x/login?", "x/healthz?", "x/static/?", "127.0.0.1/login#"])
def test_a_host_header_that_holds_a_path_opens_no_page(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def put_together(request: Request) -> URL:  # as Starlette did before 1.0.1
        return URL(f"http://{request.headers['host']}{request.scope['path']}")

    monkeypatch.setattr(Request, "url", property(put_together))
    asking = TestClient(guarded(), base_url=LOCAL, follow_redirects=False)
    answer = asking.get("/dead", headers={"Host": host})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fdead")
    assert asking.get("/live", headers={"Host": host}).status_code == 401
    assert asking.get("/login", headers={"Host": host}).text == "reached"


@pytest.mark.parametrize("path", ["/lo%09gin", "/healt%0Ahz"])
def test_a_path_is_open_only_as_the_router_takes_it(path: str) -> None:
    answer = TestClient(guarded(), base_url=LOCAL, follow_redirects=False).get(path)
    assert answer.status_code == 303


@pytest.mark.parametrize("path", ["/explain?what=a%26b", "/explain/a%3Fb", "/explain/%C3%A4%20b?x=%23"])
def test_the_login_leads_back_to_the_very_address_that_was_wanted(path: str) -> None:
    answer = TestClient(guarded(), base_url=LOCAL, follow_redirects=False).get(path)
    assert parse_qs(urlsplit(answer.headers["location"]).query) == {"next": [path]}


def guarded() -> Guard:
    """The guard of a console that asks for a login, before an application that answers to everything."""
    return Guard(PlainTextResponse("reached"), Sessions(login=True))


@pytest.mark.parametrize("path", ["/live?page=/lanes"])
def test_a_stream_without_a_session_is_refused(client: Client, path: str) -> None:
    assert client(login=True).get(path).status_code == 401


@pytest.mark.parametrize("elsewhere", ["//evil.example", "/\\evil.example", "https://evil.example", "/logout"])
def test_a_login_leads_to_a_page_of_the_consoles_own_and_nowhere_else(
    client: Client, given: Given, elsewhere: str
) -> None:
    answer = client(login=True).post("/login", data={"token": given.reader, "next": elsewhere})
    assert answer.headers["location"] == "/"


def test_a_wrong_token_is_refused_and_after_five_nothing_is_looked_at_for_a_minute(
    client: Client, given: Given
) -> None:
    asking = client(login=True)
    for _ in range(5):
        assert asking.post("/login", data={"token": "wrong"}).status_code == 401
    throttled = asking.post("/login", data={"token": given.operator})
    assert throttled.status_code == 429
    assert throttled.headers["retry-after"] == "60"


def test_the_cookie_is_kept_from_scripts_and_other_sites_and_from_plain_http_where_there_is_https(
    client: Client, given: Given
) -> None:
    plain = client(login=True).post("/login", data={"token": given.reader}).headers["set-cookie"]
    assert "HttpOnly" in plain and "SameSite=strict" in plain and "Secure" not in plain
    safe = client(login=True, base="https://ops.example").post("/login", data={"token": given.reader})
    assert "Secure" in safe.headers["set-cookie"]


def test_a_cookie_of_another_console_or_one_that_was_changed_is_no_session(client: Client, given: Given) -> None:
    other, asking = client(given.operator), client(login=True)
    cookie = other.cookies[COOKIE]
    for forged in (cookie, cookie[:-2] + "xx", "", "a.b.c"):
        asking.cookies.set(COOKIE, forged)
        assert asking.get("/lanes").status_code == 303


def test_whoever_may_read_sees_every_page_and_changes_nothing(
    client: Client, given: Given, broker: FleetBroker
) -> None:
    reading = client(given.reader)
    for page in PAGES:
        if "{" not in page.path:
            assert reading.get(page.path).status_code == 200, page.path
    assert "form_token" not in reading.get(ENTRY).text
    visitor_token = form_token_of(reading)
    answer = reading.post(f"{ENTRY}/pause", data={"because": WHY, "form_token": visitor_token})
    assert answer.status_code == 403 and "role operate" in answer.text
    assert paused(broker.client, broker.namespace) == {}
    assert read(broker, 5) == []


def form_token_of(client: TestClient) -> str:
    """What a reader's forms would carry, if they had any."""
    guard = client.app
    sessions = guard._sessions  # type: ignore[attr-defined]
    return str(sessions.form_token(sessions.of_cookie(client.cookies[COOKIE])))


def test_an_act_needs_the_token_of_a_page_of_its_own_session(client: Client, given: Given, broker: FleetBroker) -> None:
    acting, other = client(given.operator), client(given.operator)
    assert pause(acting) == 403
    assert pause(acting, form_token(other, ENTRY)) == 403
    assert paused(broker.client, broker.namespace) == {}
    assert pause(acting, form_token(acting, ENTRY)) == 303


def test_an_act_from_another_sites_page_is_refused_whatever_it_carries(client: Client, given: Given) -> None:
    acting = client(given.operator)
    token = form_token(acting, ENTRY)
    assert pause(acting, token, **OTHER) == 403
    assert pause(acting, token, Origin="https://evil.example") == 403
    assert pause(acting, token, Origin="null") == 403
    assert acting.post("/login", data={"token": given.reader}, headers=OTHER).status_code == 403
    assert pause(acting, token, Origin="http://127.0.0.1") == 303


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example", "10.0.0.7:8310", ""])
def test_without_a_login_only_a_loopback_name_is_answered(client: Client, name: str) -> None:
    assert client().get("/", headers={"Host": name}).status_code == 421


@pytest.mark.parametrize("name", ["localhost:8310", "127.0.0.1", "[::1]:8310"])
def test_without_a_login_loopback_names_are_answered(client: Client, name: str) -> None:
    assert client().get("/beats", headers={"Host": name}).status_code == 200


def test_without_a_login_what_a_proxy_passes_on_is_refused(client: Client) -> None:
    assert client().get("/", headers={"X-Forwarded-For": "10.0.0.7"}).status_code == 403


def test_nothing_may_be_framed_or_run_but_the_consoles_own_files(client: Client) -> None:
    for path in ("/", "/static/console.js", "/nowhere", "/healthz"):
        policy = client().get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and "*" not in policy


def test_no_page_holds_a_script_a_style_or_a_handler_of_its_own(client: Client, fleet: object) -> None:
    asking = client()
    for page in PAGES:
        path = page.path.replace("{entry}", "nightly_audit").replace("{queue}/{id}", "agent_batch/cnVuX2V2YWxzLTAwMDAw")
        text = asking.get(path).text
        assert "<style" not in text and " style=" not in text and " onclick=" not in text, path
        assert text.count("<script") == text.count('<script src="/static/console.js" defer></script>') == 1, path


def test_logging_out_ends_the_session_in_this_browser(client: Client, given: Given) -> None:
    asking = client(given.reader)
    assert asking.post("/logout").status_code == 303
    assert asking.get("/").status_code == 303


def test_a_form_that_is_too_long_or_does_not_say_how_long_it_is_is_not_read(client: Client) -> None:
    asking = client(login=True)
    assert asking.post("/login", data={"token": "x" * 70_000}).status_code == 413
    assert asking.post("/login", content=iter([b"token=", b"x"])).status_code == 413


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize("length", ["000000000999999999", "0" * 30, "65537", "-1", "1e3", "9" * 5000])
def test_the_length_of_a_form_is_read_by_its_value(client: Client, length: str) -> None:
    told = {"Content-Length": length, "Content-Type": FORM}
    assert client(login=True).post("/login", content=b"token=x", headers=told).status_code == 413


def test_a_form_with_zeros_before_its_length_is_read(client: Client, given: Given) -> None:
    body = f"token={given.reader}".encode()
    told = {"Content-Length": f"{len(body):020}", "Content-Type": FORM}
    assert client(login=True).post("/login", content=body, headers=told).status_code == 303


def test_a_form_is_counted_as_it_comes_whatever_it_said_before(client: Client) -> None:
    told = {"Content-Length": "10", "Content-Type": FORM}
    answer = client(login=True).post("/login", content=b"token=" + b"x" * 70_000, headers=told)
    assert answer.status_code == 413 and "at most 65,536 bytes" in answer.text


def test_a_form_in_chunks_is_refused_also_where_it_gives_a_length(client: Client, given: Given) -> None:
    told = {"Content-Length": "10", "Transfer-Encoding": "chunked", "Content-Type": FORM}
    assert client(login=True).post("/login", content=b"token=xxxx", headers=told).status_code == 413


def test_wrong_tokens_are_counted_for_a_minute_and_for_each_address_alone() -> None:
    at = [0.0]
    tries = Tries(lambda: at[0])
    for _ in range(TRIES):
        assert tries.left("10.0.0.7")
        tries.wrong("10.0.0.7")
    assert not tries.left("10.0.0.7") and tries.left("10.0.0.8")
    at[0] = 61.0
    assert tries.left("10.0.0.7")
