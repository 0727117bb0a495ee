"""A process that is killed at the n-th boundary of commit, send and delete, or of a relay's pass.

`python -m tests.chaos.outbox_process FLOW` forks a child for n = 1, 2, … until one comes to its end, and prints how
many were killed. FLOW is `send`, `relay`, or `once` (one that dies between its commit and its send).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from sqlalchemy import event

from fleet import outbox
from fleet.relay import relay
from tests.fleet.post import Post

Step = Callable[[], None]


def around(step: Step, call: Callable[..., Any]) -> Callable[..., Any]:
    """A call with a boundary before and behind it."""

    def stepped(*args: Any, **named: Any) -> Any:
        step()
        answer = call(*args, **named)
        step()
        return answer

    return stepped


def kill_at(post: Post, number: int) -> None:
    """SIGKILL to this process at the n-th boundary from now."""
    left = number

    def step(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(post.engine, "before_cursor_execute", step)
    event.listen(post.engine, "after_cursor_execute", step)
    post.engine.dialect.do_commit = around(step, post.engine.dialect.do_commit)  # type: ignore[method-assign]
    post.broker.accept = around(step, post.broker.accept)  # type: ignore[method-assign]
    for command in ("zmscore", "zrem"):
        setattr(post.broker.client, command, around(step, getattr(post.broker.client, command)))


def sends(post: Post, number: int) -> None:
    """One transaction with a savepoint that is rolled back, then one that is rolled back as a whole."""
    kill_at(post, number)
    with post.session() as s:
        post.order(s, f"first {number}")
        savepoint = s.begin_nested()
        post.order(s, f"rolled back to its savepoint {number}")
        savepoint.rollback()
        post.order(s, f"second {number}")
        s.commit()
        post.order(s, f"rolled back {number}")
        s.rollback()


def relays(post: Post, number: int) -> None:
    """A pass over what a sender has left."""
    send, outbox._send = outbox._send, lambda *_: None
    with post.session() as s:
        post.order(s, f"left behind {number}")
        post.order(s, f"left behind too {number}")
        s.commit()
    outbox._send = send
    post.age(timedelta(minutes=1))
    kill_at(post, number)
    relay(post.engine, post.broker)


def dies_before_its_send(post: Post, journal: str, name: str) -> None:
    """Commit, and die; the message is a job of the supervisors' tests that ends at once."""
    outbox._send = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    with post.session() as s:
        post.actor("wait", "jobs").send_on_commit(s, journal, name, "no file", 0.0)
        s.commit()


def main() -> None:
    flow, *arguments = sys.argv[1:]
    where = [os.environ[name] for name in ("FLEET_REDIS_URL", "FLEET_DATABASE_URL", "FLEET_NAMESPACE")]
    if flow == "once":
        dies_before_its_send(Post(where[0], where[1], where[2]), *arguments)
        return
    killed = 0
    while True:
        child = os.fork()
        if child == 0:
            {"send": sends, "relay": relays}[flow](Post(where[0], where[1], where[2]), killed + 1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0
            print(killed)
            return
        killed += 1


if __name__ == "__main__":
    main()
