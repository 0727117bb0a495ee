"""Middleware written to Dramatiq's API hears on our broker what it hears on stock, but for the differences we want.

Those are in docs/decisions/0004: a delay is one enqueue and no consumer takes it up, so that its second enqueue, its
acknowledgement, and the hooks of consumers and of delays are not heard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from dramatiq import Broker, Message, MessageProxy, Retry
from dramatiq.errors import RateLimitExceeded
from dramatiq.middleware import CurrentMessage, Middleware, Retries, SkipMessage
from dramatiq.results import Results

from tests.broker.sides import Side
from tests.broker.station import QUEUE
from tests.waiting import wait_until

SENT = ["before_enqueue", "after_enqueue"]
ACKED = ["before_ack", "after_ack"]
NACKED = ["before_nack", "after_nack"]
RAN = ["before_process_message", "after_process_message"]
SKIPPED = ["before_process_message", "after_skip_message"]
STOCKS_DELAY = ["before_delay_message", *SENT, *ACKED]  # it is taken up, sent a second time, and acknowledged


class Recorder(Middleware):
    """A third party's: notes each of its hooks with what it is about, and has an option of its own."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    @property
    def actor_options(self) -> set[str]:
        return {"colour"}

    def of_messages(self) -> list[str]:
        """The hooks that were about messages, in order."""
        return [hook for hook, about in self.heard if isinstance(about, (Message, MessageProxy))]

    def hooks(self) -> Counter[str]:
        return Counter(hook for hook, _ in self.heard)


def _noting(hook: str) -> Callable[..., None]:
    def note(self: Recorder, _: Broker, about: Any = None, *__: Any, **___: Any) -> None:
        self.heard.append((hook, about))

    return note


for _name in vars(Middleware):
    if _name.startswith(("before_", "after_")):
        setattr(Recorder, _name, _noting(_name))


class Refuser(Middleware):
    """Does to each message what its option says, before it runs."""

    @property
    def actor_options(self) -> set[str]:
        return {"refuse"}

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        refuse = broker.get_actor(message.actor_name).options.get("refuse", "")
        if "fail" in refuse:
            message.fail()
        if "skip" in refuse:
            raise SkipMessage("not today")


@pytest.fixture
def recorder(side: Side) -> Recorder:
    made = Recorder()
    side.broker.add_middleware(made)
    side.broker.add_middleware(Refuser())
    return made


def boom(*_: Any) -> None:
    raise ValueError("no")


FATES = {
    "done": (lambda: None, {}, [*SENT, *RAN, *ACKED]),
    "dead": (boom, {"max_retries": 0}, [*SENT, *RAN, *NACKED]),
    "thrown": (boom, {"throws": ValueError}, [*SENT, *RAN, *NACKED]),
    "skipped": (boom, {"refuse": "skip"}, [*SENT, *SKIPPED, *ACKED]),
    "skipped and failed": (boom, {"refuse": "skip, fail"}, [*SENT, *SKIPPED, *NACKED]),
    "failed": (boom, {"refuse": "fail"}, [*SENT, *RAN, *NACKED]),
}


@pytest.mark.parametrize("fate", FATES)
def test_each_fate_of_a_message_is_heard_in_stocks_order(fate: str, side: Side, recorder: Recorder) -> None:
    body, options, expected = FATES[fate]
    side.actor(body, actor_name="job", **options).send()
    side.work()
    side.join()
    wait_until(lambda: len(recorder.of_messages()) >= len(expected))
    assert recorder.of_messages() == expected
    assert side.dead() == ("before_nack" in expected)


def test_a_retry_is_heard_as_a_run_a_send_and_an_acknowledgement(side: Side, recorder: Recorder) -> None:
    runs: list[int] = []

    def again() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise Retry(delay=5)

    side.actor(again, actor_name="job").send()
    side.work(threads=1)
    expected = [*SENT, *RAN, *SENT, *ACKED, *RAN, *ACKED]
    if side.whose == "ours":
        wait_until(lambda: recorder.of_messages() == expected)
    else:  # whose consumers are threads of their own: no order
        wait_until(lambda: Counter(recorder.of_messages()) == Counter(expected) + Counter(STOCKS_DELAY))


def test_a_delayed_message_is_heard_once_where_stock_hears_it_twice(side: Side, recorder: Recorder) -> None:
    sent = side.actor(lambda: None, actor_name="job").send_with_options(delay=20)
    side.work(threads=1)
    expected = Counter([*SENT, *RAN, *ACKED])
    if side.whose == "stock":
        expected += Counter(STOCKS_DELAY)
    wait_until(lambda: Counter(recorder.of_messages()) == expected)
    (first, *_) = [about for hook, about in recorder.heard if hook == "before_enqueue"]
    assert isinstance(first, Message)
    assert ("eta" in first.options, "eta" in sent.options) == ((side.whose == "stock",) * 2)


def test_a_worker_is_heard_from_its_boot_to_its_end(side: Side, recorder: Recorder) -> None:
    recorder.heard.clear()
    side.work(threads=3)
    wait_until(lambda: recorder.hooks()["after_worker_thread_boot"] == 3)
    side.stop()
    of_workers = {"before_worker_boot": 1, "after_worker_boot": 1, "after_worker_thread_boot": 3}
    of_workers |= {"before_worker_thread_shutdown": 3, "before_worker_shutdown": 1, "after_worker_shutdown": 1}
    if side.whose == "stock":  # one consumer for the queue and one for its delays
        of_workers |= {"after_consumer_thread_boot": 2, "before_consumer_thread_shutdown": 2}
    assert recorder.hooks() == of_workers
    assert recorder.heard[0][0] == "before_worker_boot"
    assert recorder.heard[-1][0] == "after_worker_shutdown"


def test_middleware_hears_what_is_declared_after_it_and_what_was_declared_before_it(
    side: Side, recorder: Recorder
) -> None:
    recorder.heard.clear()
    side.actor(boom, actor_name="job", queue_name="another")
    delays = ["after_declare_delay_queue"] if side.whose == "stock" else []
    declared = ["before_declare_queue", "after_declare_queue", *delays]
    assert [hook for hook, _ in recorder.heard] == ["before_declare_actor", *declared, "after_declare_actor"]
    late = Recorder()
    side.broker.add_middleware(late, before=Retries)
    names = {"another", QUEUE}
    assert {about for hook, about in late.heard if hook == "after_declare_queue"} == names
    assert [about.actor_name for hook, about in late.heard if hook == "after_declare_actor"] == ["job"]
    at = [type(one) for one in side.broker.middleware]
    assert at.index(Recorder) == at.index(Retries) - 1
    with pytest.raises(ValueError, match="not found"):
        side.broker.add_middleware(Recorder(), after=SkipMessageMiddleware)


class SkipMessageMiddleware(Middleware):
    """One that no broker here has."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_middleware_that_is_added_while_a_worker_runs_hears_the_next_message(side: Side) -> None:
    job = side.actor(lambda: None, actor_name="job")
    side.work()
    job.send()
    side.join()
    late = Recorder()
    side.broker.add_middleware(late)
    job.send()
    wait_until(lambda: late.of_messages() == [*SENT, *RAN, *ACKED])


def test_an_option_is_known_with_its_middleware_and_refused_without(side: Side) -> None:
    with pytest.raises(ValueError, match="colour"):
        side.actor(boom, colour="red")
    side.broker.add_middleware(Recorder())
    assert side.actor(boom, colour="red").options["colour"] == "red"


def test_a_job_may_skip_itself_and_a_skipped_jobs_result_is_none(side: Side, recorder: Recorder) -> None:
    def skip() -> None:
        raise SkipMessage("nothing to do")

    sent = side.actor(skip, actor_name="job", store_results=True).send()
    side.work()
    assert sent.get_result(block=True, timeout=5_000) is None
    side.join()
    assert recorder.of_messages() == [*SENT, *SKIPPED, *ACKED]


def test_a_rate_limit_and_an_exception_of_middleware_reach_the_after_hooks_and_are_tried_again(side: Side) -> None:
    raised: list[str] = []

    class Sees(Middleware):
        def after_process_message(
            self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
        ) -> None:
            raised.append(f"{type(exception).__name__} {result}")

    def limited() -> int:
        if len(raised) < 1:
            raise RateLimitExceeded("busy")
        return 7

    side.broker.add_middleware(Sees())
    sent = side.actor(limited, actor_name="job", store_results=True).send()
    side.work()
    assert sent.get_result(block=True, timeout=5_000) == 7
    assert raised == ["RateLimitExceeded None", "NoneType 7"]


def test_middleware_is_found_by_its_kind_as_results_and_current_message_are(side: Side) -> None:
    assert side.broker.get_results_backend() is side.results
    assert [type(one) for one in side.broker.middleware if isinstance(one, (Results, CurrentMessage))] == [
        CurrentMessage,
        Results,
    ]
