"""What runs instead of a body, and after one, for a job that was cut off: its actor's `on_lost`.

After a soft deadline it runs in the job's own thread, disarmed; its failure is said and never changes how the message
ends. So it does for a message that is refused when it comes again (it expired) after its first process died: nobody
else will end what that left. After a hard budget, or the death of its process, it comes as a message of its own with
the option `lost`, which is run here in place of the body, under the actor's soft budget and with its retries.

Its process may live on for its neighbours, and meanwhile somebody may queue the dead letter again. Its next delivery
has its id and takes its rows over, so where the message is in its queue again, whether it waits or runs, `on_lost` is
left out: it could not tell one delivery's rows from the other's.

Not guaranteed: that it runs at all when the process dies meanwhile, or that it runs once. A row's lease is what ends it
in the first case, and its token what makes the second harmless. Nor that it spares a message that was queued again
after it had begun; or that it does not run once that message has ended anew (a row has its end then, and keeps it). A
worker of a release that does not ask does not leave it out. Where it was, and the next delivery does not get as far as
its rows, a janitor ends them.
"""

from __future__ import annotations

from typing import Any

from dramatiq import Actor, Message, MessageProxy
from redis import RedisError

from fleet import wire
from fleet.actor import FleetActor, current_delivery
from fleet.broker import FleetBroker, keys
from fleet.errors import DeadlineExceeded
from fleet.logs import get_logger
from fleet.workers.reading import FleetMessage

log = get_logger(__name__)


def run_body(actor: Actor[..., Any], message: FleetMessage, broker: FleetBroker) -> Any:
    """Call the actor, or its `on_lost` for a message that stands for a lost one; raises what either raises.

    Of a lost one also what redis-py raises where it cannot be asked whether it is queued again: a failure like another.
    """
    reason = message.options.get(wire.LOST)
    if reason is None:
        return actor(*message.args, **message.kwargs)
    if not isinstance(actor, FleetActor):
        return None
    if _is_queued_again(message, broker):
        log.info("on_lost_left_out", actor=message.actor_name, message_id=_original_id(message), reason=str(reason))
    else:
        actor.lost(_original(message), str(reason))
    return None


def _is_queued_again(message: FleetMessage, broker: FleetBroker) -> bool:
    """Whether the job that this message stands for waits or runs anew: a verdict took its body out of its queue."""
    fetched = message.fetched
    if not fetched.id.endswith(wire.LOST_SUFFIX):
        return False
    raw = fetched.id.removesuffix(wire.LOST_SUFFIX).encode(errors="surrogateescape")
    return bool(broker.client.hexists(keys.bodies(broker.namespace, fetched.queue), raw))


def after_deadline(actor: Actor[..., Any], message: MessageProxy, failure: BaseException) -> None:
    """Have the actor end what a job left whose soft budget ended; does nothing after any other failure."""
    if not isinstance(failure, DeadlineExceeded) or wire.LOST in message.options:
        return
    _tell(actor, message, str(failure), **{wire.DELIVERY: current_delivery()})


def after_refusal(actor: Actor[..., Any], message: FleetMessage, refusal: BaseException, broker: FleetBroker) -> None:
    """Have the actor end what an earlier delivery left that was lost, if this one will not run; else does nothing."""
    if not isinstance(actor, FleetActor) or actor.on_lost is None or wire.LOST in message.options:
        return
    fetched = message.fetched
    try:
        raw = fetched.id.encode(errors="surrogateescape")
        lost = broker.client.hexists(keys.losses(broker.namespace, fetched.queue), raw)
    except RedisError as error:  # then its row waits for a janitor
        log.warning("losses_unknown", actor=message.actor_name, message_id=message.message_id, error=str(error))
        return
    if lost:
        _tell(actor, message, f"its worker was lost, and it did not run again: {refusal}")


def _tell(actor: Actor[..., Any], message: MessageProxy, reason: str, **options: str) -> None:
    if isinstance(actor, FleetActor) and actor.on_lost is not None:
        try:
            actor.on_lost(_original(message, **options), reason)
        except BaseException as error:  # whatever it is, the message ends as it would have
            log.exception("on_lost_failed", actor=message.actor_name, message_id=message.message_id, error=repr(error))


def _original(message: MessageProxy, **more: str) -> Message[Any]:
    """The message whose job was lost, under the id that its rows know."""
    options = {name: value for name, value in message.options.items() if name != wire.LOST} | more
    return Message(
        queue_name=message.queue_name,
        actor_name=message.actor_name,
        args=message.args,
        kwargs=message.kwargs,
        options=options,
        message_id=_original_id(message),
        message_timestamp=message.message_timestamp,
    )


def _original_id(message: MessageProxy) -> str:
    return message.message_id.removesuffix(wire.LOST_SUFFIX) if wire.LOST in message.options else message.message_id
