"""What a process counts of the messages that flow through it, flushed into one hash a night minute.

(skeleton: the names are fixed, the work follows)
"""

from __future__ import annotations

from datetime import datetime, timedelta

from dramatiq import Message, MessageProxy


def start_lag(message: Message[object] | MessageProxy, real_now: datetime) -> timedelta | None:
    """From when a message was due (its sending, or its eta) until now, in night time; None if it does not say."""
    raise NotImplementedError
