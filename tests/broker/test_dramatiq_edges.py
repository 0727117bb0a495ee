"""What others do to messages, queues and the list of middleware at the edges of Dramatiq's API, on both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from dramatiq import Broker, Message, MessageProxy, Retry
from dramatiq.middleware import CurrentMessage, Middleware, Retries, SkipMessage

from fleet import wire
from fleet.broker import keys
from tests.broker.sides import Side
from tests.broker.station import QUEUE
from tests.waiting import wait_until


def current() -> Message[Any]:
    message = CurrentMessage.get_current_message()
    assert message is not None
    return message


def test_a_job_that_sends_itself_on_twice_is_sent_on_twice(side: Side) -> None:
    ran: list[int] = []

    def split(n: int) -> None:
        ran.append(n)
        for part in (2 * n, 2 * n + 1) if n == 1 else ():
            side.broker.enqueue(current().copy(args=(part,)))

    side.actor(split).send(1)
    side.work()
    side.join()
    assert sorted(ran) == [1, 2, 3]


def test_a_job_that_sent_itself_on_and_failed_is_both(side: Side) -> None:
    ran: list[int] = []

    def page(n: int) -> None:
        ran.append(n)
        if ran == [1]:
            side.broker.enqueue(current().copy(args=(n + 1,)))
            raise ValueError("the bank is shut")

    side.actor(page).send(1)
    side.work(threads=1)
    wait_until(lambda: len(ran) == 3)
    assert sorted(ran) == [1, 1, 2]


@pytest.mark.parametrize("where", ["job", "hook"])
def test_a_message_may_move_itself_to_another_queue(where: str, side: Side) -> None:
    ran: list[str] = []

    class Moves(Middleware):
        def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
            if where == "hook" and message.queue_name == QUEUE:
                broker.enqueue(message.copy(queue_name="slow"))
                raise SkipMessage("moved")

    def move() -> None:
        ran.append(current().queue_name)
        if current().queue_name == QUEUE:
            side.broker.enqueue(current().copy(queue_name="slow"))

    side.broker.add_middleware(Moves())
    job = side.actor(move)
    side.broker.declare_queue("slow")
    job.send()
    side.work(threads=1, queues={QUEUE})
    side.join()
    assert ran == ([] if where == "hook" else [QUEUE])
    side.work(threads=1, queues={"slow"})
    side.join("slow")
    assert ran[-1] == "slow"


def test_a_hook_that_puts_a_message_off_and_skips_it_has_it_come_again_once(side: Side) -> None:
    ran: list[int] = []
    seen: list[int] = []

    class PutsOff(Middleware):
        def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
            seen.append(1)
            if len(seen) == 1:
                broker.enqueue(message.copy(), delay=20)
                raise SkipMessage("not now")

    side.broker.add_middleware(PutsOff())
    side.actor(ran.append, actor_name="job").send(1)
    side.work()
    wait_until(lambda: ran)
    side.join()
    assert (ran, len(seen)) == ([1], 2)


def test_an_enqueue_hook_gets_a_message_of_its_own_also_for_a_retry(side: Side) -> None:
    kinds: list[type] = []
    stamps: list[Any] = []
    ended: list[Any] = []

    class Stamps(Middleware):
        def before_enqueue(self, broker: Broker, message: Message[Any], delay: int | None) -> None:
            kinds.append(type(message))
            message.options["stamp"] = len(kinds)

        def after_process_message(self, broker: Broker, message: MessageProxy, **_: Any) -> None:
            ended.append(message.options["stamp"])

    def again() -> None:
        stamps.append(current().options["stamp"])
        if len(stamps) == 1:
            raise Retry(delay=0)

    side.broker.add_middleware(Stamps(), before=Retries)  # so that its after-hook comes after the retry was sent
    side.actor(again).send()
    side.work(threads=1)
    wait_until(lambda: len(ended) == 2)
    assert set(kinds) == {Message}
    assert (stamps[0], ended[0]) == (1, 1), "the message that ran keeps its own options"
    assert stamps[1] == ended[1] > 1


def test_a_message_of_no_known_actor_is_heard_as_rejected(side: Side) -> None:
    heard: list[str] = []

    class Hears(Middleware):
        def before_nack(self, broker: Broker, message: MessageProxy) -> None:
            heard.append(f"before {message.actor_name} {message.failed}")

        def after_nack(self, broker: Broker, message: MessageProxy) -> None:
            heard.append(f"after {message.actor_name} {message._exception!r}")

    side.broker.add_middleware(Hears())
    side.broker.enqueue(Message(QUEUE, "nobody", (), {}, {wire.LEFT: 1}))
    side.work()
    side.join()
    assert side.dead() == 1
    assert wait_until(lambda: len(heard) == 2 and heard) == [
        "before nobody True",
        "after nobody ActorNotFound('nobody')",
    ]


def test_a_flushed_queue_leaves_no_key_behind(side: Side) -> None:
    note = side.actor(print, actor_name="note")
    note.send(1)
    note.send_with_options(args=(2,), delay=60_000)
    side.broker.flush_all()
    client = side.broker.client  # type: ignore[attr-defined]
    kept = {keys.heartbeats(side.namespace).encode()}
    assert {key for key in client.scan_iter(f"{side.namespace}:*") if b":fleet:sender:" not in key} <= kept


Edit = Callable[[list[Middleware], Middleware], None]


@pytest.mark.parametrize("edit", [list.append, lambda them, one: them.insert(0, one)], ids=["append", "insert"])
def test_middleware_put_into_the_list_by_hand_is_heard_and_taken_out_is_not(edit: Edit, side: Side) -> None:
    ran: list[str] = []

    class Hears(Middleware):
        def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
            ran.append("hook")

    job = side.actor(lambda: ran.append("job"), actor_name="job")
    side.work(threads=1)
    one = Hears()
    for change in (lambda: None, lambda: edit(side.broker.middleware, one), lambda: side.broker.middleware.remove(one)):
        change()
        job.send()
        side.join()
    assert ran == ["job", "hook", "job", "job"]
