"""Ends parcels whose worker was lost: the lease has lapsed."""

from __future__ import annotations

from collections.abc import Sequence

from actors.parcels import Parcel

from fleet import janitor, queue
from fleet.storage.stuck_rows import Move, StuckRows, lapsed


def chores() -> Sequence[StuckRows]:
    ended = {"status": "failed", "outcome": "its worker was lost", "lease_until": None}
    move = Move("ended", lapsed(Parcel), Parcel.lease_until, ended)
    return [StuckRows(Parcel, [move], seen=Parcel.status == "running")]


@queue("housekeeping").actor
def end_lost_parcels() -> None:
    janitor.run("end_lost_parcels", chores())
