"""The console as the ACL user of its role: every page and every act, and nothing of it is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fleet import allowance, by_hand, wire
from fleet import app as application
from fleet.app import App
from fleet.broker import FleetBroker, keys
from fleet.broker.dead import letters
from fleet.broker.roles import own_of
from fleet.clock import clock
from fleet.console.letters import address
from fleet.servers import require_broker
from fleet.storage import database
from fleet.window import window
from tests.broker.conftest import OwnRedis
from tests.broker.conftest import own_redis as own_redis
from tests.console import staged
from tests.console.conftest import Client, form_token
from tests.security.users import Users

WHY = "the bank is closed today"
PAGES = (
    *("/", "/lanes", "/schedule", "/schedule/nightly_audit", "/dead", "/dead?actor=run_evals", "/beats", "/alerts"),
    *(
        "/balancer",
        "/night",
        "/audit",
        "/runs",
        "/budgets",
        "/runbook",
        "/explain?what=run_evals-00001",
        "/live?page=/x",
    ),
)


@pytest.fixture
def redis_url(own_redis: OwnRedis) -> str:
    return own_redis.url


@pytest.fixture
def namespace() -> str:
    return "own"


@pytest.fixture
def users(own_redis: OwnRedis, app: App) -> Iterator[Users]:
    """The users; from here on this process's broker is the console's."""
    broker = application.process_broker()
    admin = staged.whole(broker, app, database())
    staged.dead_letters(broker, "charging", 3, "charge_customer", "failed", "ValueError: no")
    made = Users(own_redis, own_of(broker))
    before = broker.client
    broker.__dict__["client"] = FleetBroker(url=made.url("console"), namespace="own", middleware=[]).client
    broker.__dict__.pop("own_scripts", None)
    yield made
    broker.client.close()
    broker.__dict__["client"] = before
    broker.__dict__.pop("own_scripts", None)
    admin.stop()


def test_every_page_and_every_act_of_the_console_is_in_its_roles_rights(
    users: Users, client: Client, app: App, broker: FleetBroker
) -> None:
    require_broker(broker, "console")
    acting = client()
    for page in PAGES:
        shown = acting.get(page)
        assert shown.status_code in (200, 404), f"{page}: {shown.text[-1000:]}"
    entry = app.entry("categorize_uncategorized_transactions")
    token = form_token(acting, "/schedule/nightly_audit")
    left = window(entry, now := clock.now()).holdable_until(now) - now
    hours = str(left.total_seconds() / 7200)
    given = {"because": WHY, "form_token": token, "hours": hours}
    acts = ["/schedule/nightly_audit/" + act for act in ("pause", "resume", "fire")]
    acts += [f"/balancer/{entry.name}/hold", f"/balancer/{entry.name}/release", "/balancer/off", "/balancer/on"]
    for act in acts:
        assert acting.post(act, data=given).status_code == 303, act
    first, second, _ = letters(broker, ["charging"])
    for letter, do in ((first, "requeue"), (second, "discard")):
        more = {"do": do, "queue": "charging", "id": address(letter.place.id), "died": str(wire.to_ms(letter.died))}
        assert acting.post("/dead/act", data={**given, **more}).status_code == 303
    assert broker.client.lrange(keys.queue("own", "charging"), -1, -1) == [first.place.id.encode()]
    assert by_hand.paused(broker.client, "own") == {} and allowance.holds(broker, [entry.name]) == {}
    assert users.refused() == []
