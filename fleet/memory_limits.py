"""What a lane's pod may take of memory, compared with what its processes may before they are killed: of `fleet check`.

Where a container's memory limit is reached, Kubernetes has the kernel kill all of its processes at once (cgroup v2,
from 1.28 on: `memory.oom.group`), the supervisor too. `kill_rss` comes before that and takes one process, if its sum
over a lane's processes and one suspect leaves `BESIDE_THEM` of the limit.

Not guaranteed: that the limit is never reached. Memory is looked at twice a second; several suspects may run at once,
or one beside a process that is being replaced. Then the pod goes, and its messages return as those of a lost host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from fleet.app import App
from fleet.declarations import Lane
from fleet.deployments import deployments

MIB = 1 << 20
BESIDE_THEM = 256 * MIB  # a supervisor and a spare of 75 MiB each, as measured, and 64 MiB of boards in /dev/shm
_QUANTITY = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?\d+)?")
_POWERS = {letter: power for power, letter in enumerate("kMGTPE", 1)}


def memory_limits(app: App) -> Iterator[str]:
    """A finding for each limit that a lane's processes reach before they are killed one by one.

    Raises `NotReadable`.
    """
    lanes = {lane.name: lane for lane in app.lanes}
    for one in deployments(app.root):
        given = ((one.container.get("resources") or {}).get("limits") or {}).get("memory")
        if given is not None and one.lane in lanes:
            yield from _too_small(f"{one.where}: limits.memory {given}", given, lanes[one.lane])


def _too_small(what: str, given: object, lane: Lane) -> Iterator[str]:
    limit = _bytes(str(given))
    at_once = lane.processes + 1
    if limit is None:
        yield f"{what} is no quantity of Kubernetes: write it as 768Mi or 2Gi."
    elif lane.kill_rss is None:
        most = max(1, (limit - BESIDE_THEM) // at_once // MIB)
        yield (
            f"{what} ends the whole pod when one job takes it up, for lane {lane.name!r} has no kill_rss: give "
            f"Lane(kill_rss=) {most} MiB or less, or more memory and more."
        )
    elif limit < (needed := at_once * lane.kill_rss + BESIDE_THEM):
        yield (
            f"{what} is less than lane {lane.name!r} may take ({lane.processes} + 1 suspect times kill_rss, "
            f"{lane.kill_rss // MIB} MiB, and {BESIDE_THEM // MIB} MiB beside them), so one job could end the "
            f"whole pod: give {-(-needed // MIB)}Mi or more, or a smaller kill_rss."
        )


def _bytes(text: str) -> int | None:
    """The bytes of Kubernetes' `768Mi`; None for what is none."""
    found = _QUANTITY.fullmatch(text.strip())
    if found is None:
        return None
    number, unit = Decimal(found[1]), found[2] or ""
    if unit in ("", "m"):
        return int(number / 1000 if unit else number)
    if unit[0] in "eE" and unit[1:] not in ("", "i"):
        return int(number.scaleb(int(unit[1:])))
    return int(number * (1024 if unit.endswith("i") else 1000) ** _POWERS[unit[0]])
