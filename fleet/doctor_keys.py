"""What `fleet doctor` finds of the keys for what messages carry: whether each lane opens what the others seal.

Known from what supervisors and beats report, as digests of their keys. Not guaranteed: anything about who only sends,
nor about a release that does not report its keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fleet.diagnosis import Finding, problem
from fleet.workers.presence import Report


def keys_of_messages(reports: Iterable[Report]) -> Iterator[Finding]:
    """A problem for each key that somebody seals with and a lane does not know."""
    told = [report for report in reports if report.payload_keys is not None]
    sealing: dict[str, str] = {}
    for report in told:
        if report.payload_keys and report.payload_keys[0] != "-":
            sealing.setdefault(report.payload_keys[0], _name(report))
    for key, by in sorted(sealing.items()):
        lanes = [one for one in told if one.kind == "supervisor"]
        lacking = sorted({_name(one) for one in lanes if key not in (one.payload_keys or ())})
        if lacking:
            yield problem(
                "fleet",
                f"{by} seals messages with a key that is not in FLEET_PAYLOAD_KEYS of {', '.join(lacking)}",
                "What it sends there becomes dead letters (`sealed`)",
                "Give it to them, behind their own; then `fleet dead requeue --reason sealed`. docs/security.md",
            )


def _name(report: Report) -> str:
    return f"{'the beat' if report.kind == 'beat' else f'lane {report.name}'} on {report.host}"
