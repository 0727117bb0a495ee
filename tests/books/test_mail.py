"""How mails leave: under TLS to a server that proves its name, after a login; and what is said where they do not."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from books.mail import MailNotSent, deliver, greet, keyed_mail, outbound
from config.settings import Settings, settings
from fleet.errors import SettingsInvalid
from tests.broker.tls import Authority

USER, PASSWORD = "books-user", "books-s3cret"
LOGIN = {"BOOKS_SMTP_USER": USER, "BOOKS_SMTP_PASSWORD": PASSWORD}


class Post:
    """Takes mails, and notes under what protection and of whom, and each login that was tried."""

    def __init__(self) -> None:
        self.taken: list[tuple[bool, bool]] = []
        self.logins: list[bytes] = []

    async def handle_DATA(self, _server: Any, session: Any, _envelope: Any) -> str:
        self.taken.append((session.ssl is not None, bool(session.authenticated)))
        return "250 OK"

    def authenticate(self, _server: Any, _session: Any, _envelope: Any, _how: str, given: Any) -> AuthResult:
        assert isinstance(given, LoginPassword)
        self.logins.append(given.login)
        return AuthResult(success=given.password == PASSWORD.encode(), handled=False)


Serve = Callable[..., Post]
Set = Callable[..., None]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[Set]:
    """Set variables of the environment for the settings to be read from."""

    def give(**variables: str) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        settings.cache_clear()

    give()
    yield give
    settings.cache_clear()


@pytest.fixture
def serve(authority: Authority, given: Set) -> Iterator[Serve]:
    """Serve on loopback, with a certificate of ours for these names, or none; what is set is that server and our CA."""
    running: list[Controller] = []

    def start(names: str | None = "IP:127.0.0.1", *, login: bool = True) -> Post:
        post = Post()
        options: dict[str, Any] = (
            {"authenticator": post.authenticate} if login else {"auth_exclude_mechanism": ["LOGIN", "PLAIN"]}
        )
        if names is not None:
            options["tls_context"] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            signed = authority.sign("mail", names=names)
            options["tls_context"].load_cert_chain(signed.certificate, signed.key)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        running.append(Controller(post, hostname="127.0.0.1", port=port, **options))
        running[-1].start()
        given(BOOKS_SMTP_PORT=str(port), SSL_CERT_FILE=str(authority.certificate))
        return post

    yield start
    for controller in running:
        controller.stop()


def mail() -> EmailMessage:
    return keyed_mail("k", to="office@customer.example", subject="s", text="t\n")


def send() -> None:
    made = mail()
    with outbound() as server:
        greet(server, made)
        deliver(server, made)


def refused() -> str:
    with pytest.raises(MailNotSent) as raised:
        send()
    said = str(raised.value)
    assert USER not in said and PASSWORD not in said
    return said


def test_a_mail_goes_under_tls_after_a_login(serve: Serve, given: Set) -> None:
    post = serve()
    given(BOOKS_SMTP_TLS="starttls", **LOGIN)
    send()
    assert (post.taken, post.logins) == ([(True, True)], [USER.encode()])


def test_without_a_login_it_goes_under_tls_all_the_same(serve: Serve, given: Set) -> None:
    post = serve(login=False)
    given(BOOKS_SMTP_TLS="starttls")
    send()
    assert post.taken == [(True, False)]


def test_on_this_host_it_goes_plainly_unless_the_settings_want_tls(serve: Serve) -> None:
    post = serve()
    send()
    assert post.taken == [(False, False)]


@pytest.mark.parametrize(
    ("names", "believed", "why"),
    [
        ("DNS:elsewhere.invalid", True, "IP address mismatch"),
        ("IP:127.0.0.1", False, "unable to get local issuer certificate"),
    ],
)
def test_a_server_that_cannot_prove_its_name_gets_no_login_and_no_mail(
    serve: Serve, given: Set, tmp_path: Path, names: str, believed: bool, why: str
) -> None:
    post = serve(names)
    given(BOOKS_SMTP_TLS="starttls", **LOGIN)
    if not believed:
        given(SSL_CERT_FILE=str(Authority(tmp_path, "theirs").certificate))
    said = refused()
    assert "is not believed" in said and why in said and "SSL_CERT_FILE" in said
    assert (post.taken, post.logins) == ([], [])


def test_a_server_without_starttls_gets_no_login_and_no_mail(serve: Serve, given: Set) -> None:
    post = serve(names=None)
    given(BOOKS_SMTP_TLS="starttls", **LOGIN)
    assert "offers no STARTTLS" in refused()
    assert (post.taken, post.logins) == ([], [])


def test_a_login_that_is_refused_is_said_without_repeating_it(serve: Serve, given: Set) -> None:
    post = serve()
    given(BOOKS_SMTP_TLS="starttls", BOOKS_SMTP_USER=USER, BOOKS_SMTP_PASSWORD=f"{PASSWORD}-of-yesterday")
    assert "refused BOOKS_SMTP_USER with BOOKS_SMTP_PASSWORD (535)" in refused()
    assert post.taken == [] and post.logins


def test_a_login_where_none_is_offered_is_said(serve: Serve, given: Set) -> None:
    post = serve(login=False)
    given(BOOKS_SMTP_TLS="starttls", **LOGIN)
    assert "offers no login" in refused()
    assert post.taken == []


@pytest.mark.parametrize(
    ("host", "tls", "encrypted"),
    [
        ("127.0.0.1", None, False),
        ("localhost", None, False),
        ("::1", None, False),
        ("127.0.0.1", "starttls", True),
        ("mail.example", None, True),
        ("10.0.0.7", None, True),
        ("mail.example", "none", False),
    ],
)
def test_mails_leave_this_host_encrypted_unless_the_settings_say_none(
    given: Set, host: str, tls: str | None, encrypted: bool
) -> None:
    given(BOOKS_SMTP_HOST=host, **({"BOOKS_SMTP_TLS": tls} if tls else {}))
    assert settings().smtp_starttls is encrypted


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"BOOKS_SMTP_USER": USER}, "BOOKS_SMTP_USER and BOOKS_SMTP_PASSWORD"),
        ({"BOOKS_SMTP_PASSWORD": PASSWORD}, "BOOKS_SMTP_USER and BOOKS_SMTP_PASSWORD"),
        ({**LOGIN, "BOOKS_SMTP_HOST": "mail.example", "BOOKS_SMTP_TLS": "none"}, "BOOKS_SMTP_TLS=none would send"),
        ({**LOGIN, "BOOKS_SMTP_PASSWORD": f"{PASSWORD}-ü"}, "BOOKS_SMTP_PASSWORD: Value error, give ASCII alone"),
        ({"BOOKS_SMTP_TLS": "ssl"}, "BOOKS_SMTP_TLS"),
    ],
)
def test_a_login_that_could_not_be_used_or_would_be_seen_is_refused_at_the_start(
    given: Set, variables: dict[str, str], named: str
) -> None:
    given(**variables)
    with pytest.raises(SettingsInvalid) as raised:
        Settings.read()
    assert named in str(raised.value) and PASSWORD not in str(raised.value)
