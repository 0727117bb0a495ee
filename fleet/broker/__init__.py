"""The broker: stock Dramatiq's Redis broker, made lazy and given a heartbeat. See `fleet.broker.broker`."""

from fleet.broker.broker import FleetBroker

__all__ = ["FleetBroker"]
