"""One behaviour a file, and the order they stand in.

Before-hooks run from the top of the list down, after-hooks from the bottom up: what stands higher sees what those
below it decided.
"""

from __future__ import annotations

from dramatiq.middleware import Callbacks, CurrentMessage, Middleware, Pipelines

from middleware.budget import BudgetGrant
from middleware.check_ins import CronCheckIns
from middleware.entry_runs import EntryRuns
from middleware.event_loop import EventLoop
from middleware.expiry import Expiry
from middleware.flow import FlowCounts
from middleware.log_context import LogContext
from middleware.metrics import Metrics
from middleware.retries import LaneRetries
from middleware.sentry import Sentry
from middleware.slot_claim import SlotClaim
from middleware.tracing import Tracing

__all__ = ["default_order"]


def default_order() -> list[Middleware]:
    """A fresh set of middleware for one broker, in the order each needs."""
    return [
        Sentry(),  # outermost: reports only what all below it have left as a dead letter
        Tracing(),  # below Sentry, in whose scope of the job its spans stand
        Metrics(),  # counts outcomes, so above all that decide one
        LogContext(),  # above everything that logs about the message
        CurrentMessage(),  # above Expiry, whose enqueue hook asks what message is being worked on
        Expiry(),  # before any budget is granted: a late message costs nothing
        SlotClaim(),  # below Expiry: a late message claims nothing; above LaneRetries, which decides what is an end
        CronCheckIns(),  # below all that refuse a message: what does not begin has no check-in; above LaneRetries
        EntryRuns(),  # below all that refuse: what began is what ran; above LaneRetries, which decides how a run ended
        EventLoop(),  # has no hooks around a message, so its place is free: the loop that async actors run on
        Pipelines(),  # stock order from here: a pipeline's next message goes out only for what Retries did not repeat
        Callbacks(),  # beside Pipelines: what it sends inherits expiry and origin, so below CurrentMessage and Expiry
        FlowCounts(),  # below all that refuse a message: what it counts begins; above LaneRetries, to know what ended
        LaneRetries(),  # after-hooks: first of all decides whether a failure is final
        BudgetGrant(),  # innermost: nothing may run between the grant and the body
    ]
