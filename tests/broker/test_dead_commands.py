"""`fleet dead`: paged, looked up, queued again at a rate, with few bodies in memory and every letter accounted for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from dramatiq import Message
from typer.testing import CliRunner

from fleet import audit, cli_dead
from fleet.broker import FleetBroker, keys
from fleet.broker.dead import Filter, discard, find, letters, requeue, select
from fleet.errors import DeclarationInvalid
from tests.broker.letters import fill, spoil
from tests.broker.proxy import Proxy
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


Run = Callable[..., Any]


@pytest.fixture
def broker(redis_url: str, namespace: str) -> FleetBroker:
    return FleetBroker(url=redis_url, namespace=namespace, middleware=[])


@pytest.fixture
def run(broker: FleetBroker, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line over the queues `work` and `other`."""
    monkeypatch.setattr(cli_dead, "process_broker", lambda: broker)
    app: Any = SimpleNamespace(lanes=[SimpleNamespace(queues=("work", "other"))], actor=lambda name: None)
    return lambda *words: CliRunner().invoke(cli_dead.cli, list(words), obj=lambda: app)


def test_a_list_is_paged_across_queues_and_says_of_how_many(broker: FleetBroker, run: Run) -> None:
    fill(broker, 1_200)
    fill(broker, 34, queue="other")
    said = run("list", "--page", "2").output
    assert "page 2, letters 51–100 of 1,234" in said
    assert "work-000050" in said and "work-000099" in said
    assert "work-000049" not in said and "work-000100" not in said
    over = run("list", "--page", "4", "--most", "399").output
    assert "page 4, letters 1,198–1,234 of 1,234" in over
    assert "work-001197" in over and "work-001199" in over and "other-000000" in over and "other-000033" in over
    assert "page 99 is empty: there are 1,234 letters" in run("list", "--page", "99").output
    assert "of 34" in run("list", "--queue", "other").output


def test_a_filtered_list_says_whether_there_are_more(broker: FleetBroker, run: Run) -> None:
    fill(broker, 120)
    assert "page 2, letters 51–100; more on page 3" in run("list", "--page", "2", "--actor", "fail").output
    last = run("list", "--page", "3", "--actor", "fail").output
    assert "page 3, letters 101–120; no more" in last
    assert "work-000100" in last and "work-000099" not in last


def test_letters_are_filtered_by_age_on_both_sides(broker: FleetBroker, run: Run) -> None:
    fill(broker, 2, died=time.time() - 10 * 3600)
    fill(broker, 3, queue="other")
    assert "of 2" in run("list", "--older", "1").output
    assert "of 3" in run("list", "--newer", "1").output
    assert "no dead letters" in run("list", "--older", "1", "--newer", "9").output
    for never in ("100000000", "1e300"):
        with pytest.raises(DeclarationInvalid, match=r"--older .* give a number of hours"):
            raise run("list", "--older", never).exception
    assert "of 2" in run("list", "--older", "9", "--newer", "11").output


def test_a_stock_workers_letter_is_read_and_shown(broker: FleetBroker, run: Run) -> None:
    fill(broker, 3)
    (_, letter, _) = letters(broker, ["work"])
    assert (letter.actor, letter.reason, letter.exception) == ("fail", "failed", "ValueError: stock")
    told = json.loads(run("show", "work-000001").output)
    assert (told["args"], told["exception"], told["traceback"]) == (
        [1],
        "ValueError: stock",
        "Traceback\nValueError: stock",
    )


def test_a_letter_is_looked_up_by_its_id_without_reading_others(broker: FleetBroker, run: Run) -> None:
    fill(broker, 1_000)
    fill(broker, 500, queue="other")
    before = broker.client.info("commandstats")["cmdstat_hmget"]["calls"]
    found = find(broker, ["work", "other"], "other-000499")
    assert found is not None and found.message is not None and found.message.args == (499,)
    assert broker.client.info("commandstats")["cmdstat_hmget"]["calls"] - before == 2
    message_id = found.message.message_id
    by_message_id = find(broker, ["work", "other"], message_id)
    assert by_message_id == found
    assert "other-000499" not in run("show", "other-9").output
    assert "There is no dead letter named 'other-9'" in str(run("show", "other-9").exception)


def test_a_letter_whose_id_is_no_text_is_shown_and_discarded(broker: FleetBroker, run: Run) -> None:
    spoil(broker, b"\xffid")
    assert r"\xffid" in run("list").output
    assert json.loads(run("show", r"\xffid").output)["queue"] == "work"
    assert "1 of 1 dropped." in run("discard", "--yes").output


def test_letters_that_cannot_be_read_stay_when_the_others_are_queued_again_and_are_counted(
    broker: FleetBroker, run: Run
) -> None:
    fill(broker, 3)
    spoil(broker, b"spoiled")
    said = run("requeue", "--yes", "--rate", "1000").output
    assert said == "3 of 4 queued again; 1 cannot be read and stay.\n"
    assert broker.client.zrange(keys.dead(broker.namespace, "work"), 0, -1) == [b"spoiled"]
    assert broker.client.llen(keys.queue(broker.namespace, "work")) == 3


def test_moving_many_letters_holds_few_bodies_at_a_time(broker: FleetBroker) -> None:
    large, count = 20_000, 2_000
    for number in range(count):
        body = Message("work", "fail", ("x" * large,), {}, {}).encode()
        broker.client.zadd(keys.dead(broker.namespace, "work"), {f"{number}": number})
        broker.client.hset(keys.dead_bodies(broker.namespace, "work"), f"{number}", body)  # type: ignore[arg-type]
    tracemalloc.start()
    chosen = select(broker, ["work"], Filter(actor="fail"))
    moved = Counter(requeue(broker, chosen[: count // 2], a_second=1e9, pause=lambda seconds: None))
    dropped = sum(discard(broker, chosen[count // 2 :]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (moved["moved"], dropped) == (count // 2, count // 2)
    assert peak < large * count / 2  # a page of them, as bytes and as messages, is a fifth of it


def test_requeueing_keeps_to_its_rate(broker: FleetBroker) -> None:
    fill(broker, 10)
    began = time.monotonic()
    assert Counter(requeue(broker, select(broker, ["work"]), a_second=20)) == {"moved": 10}
    assert time.monotonic() - began >= 0.5


def test_a_requeue_that_redis_breaks_off_stands_in_the_audit_with_how_far_it_came(
    broker: FleetBroker, run: Run, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, 10)
    broker.client.script_load(broker.own_scripts.revive.script)
    lossy = FleetBroker(url=proxy.url, namespace=broker.namespace, middleware=[])
    monkeypatch.setattr(cli_dead, "process_broker", lambda: lossy)
    monkeypatch.setattr(audit, "_database", lambda: None)
    run("requeue")
    before = proxy.scripts
    run("requeue")
    proxy.lose_reply(proxy.scripts - before + 4)
    said = run("requeue", "--yes", "--rate", "1000", "--because", "the bank is open again")
    assert said.exit_code == 1 and "3 of 10 queued again." in said.output
    (row,) = audit.read(broker, 5)
    assert row.after == "3 of 10 queued again; then it broke off: ConnectionError"


def test_a_requeue_that_is_interrupted_says_how_many_it_moved(
    broker: FleetBroker, redis_url: str, namespace: str
) -> None:
    fill(broker, 50, queue="greetings")
    environment = {**os.environ, "FLEET_REDIS_URL": redis_url, "FLEET_NAMESPACE": namespace, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "fleet", "--app", str(ROOT / "examples/minimal"), "dead", "requeue"]
    with subprocess.Popen(
        [*command, "--yes", "--rate", "5"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        queue = keys.queue(namespace, "greetings")
        wait_until(lambda: broker.client.llen(queue) >= 3, 20)
        process.send_signal(signal.SIGINT)
        said, complained = process.communicate(timeout=10)
    moved = broker.client.llen(queue)
    assert 3 <= moved < 50
    assert said == f"{moved} of 50 queued again.\n"
    assert complained == "Interrupted. Say it again for the others.\n"
    assert process.returncode == 130
    assert broker.client.zcard(keys.dead(namespace, "greetings")) == 50 - moved


@pytest.mark.parametrize("which", [keys.queue, keys.bodies])
def test_a_letter_stays_as_it_is_while_its_queue_is_broken(
    which: Callable[[str, str], str], broker: FleetBroker
) -> None:
    fill(broker, 1)
    chosen, key = select(broker, ["work"]), which(broker.namespace, "work")
    broker.client.set(key, "no longer what it was")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        list(requeue(broker, chosen, a_second=1_000))
    broker.client.delete(key)
    assert list(requeue(broker, chosen, a_second=1_000)) == ["moved"]


@pytest.mark.parametrize(
    "odd",
    [
        *({"options": None}, {"options": []}, {"kwargs": None}),
        *({"actor_name": None}, {"actor_name": ["fail"]}, {"message_id": {}}),
    ],
)
def test_a_letter_whose_fields_are_of_other_types_is_listed_and_stays(
    odd: dict[str, Any], broker: FleetBroker, run: Run
) -> None:
    spoil(broker, b"odd")
    body = json.dumps({**Message("work", "fail", (1,), {}, {}).asdict(), **odd})
    broker.client.hset(keys.dead_bodies(broker.namespace, "work"), "odd", body)
    assert "page 1, letters 1–1 of 1" in run("list").output
    assert json.loads(run("show", "odd").output)["actor"] == "?"
    assert run("requeue", "--yes").output == "0 of 1 queued again; 1 cannot be read and stay.\n"
