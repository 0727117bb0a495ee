"""The broker: Dramatiq's keys and API, and the end of a message our own; `broker` sends, `pump` ends and fetches."""

from fleet.broker.broker import FleetBroker

__all__ = ["FleetBroker"]
