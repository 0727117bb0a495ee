"""What `fleet doctor` finds: a line each, of three parts.

A `problem` breaks a promise now or at the next fault, a `warning` may be wanted, a `fact` is for the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

Kind = Literal["problem", "warning", "fact"]


@dataclass(frozen=True)
class Finding:
    """In `of` (redis, postgres, fleet, host) was `found` this; `why` it matters, and what to `do`."""

    kind: Kind
    of: str
    found: str
    why: str
    do: str

    def line(self) -> str:
        """One line, whatever a server's answer held."""
        parts = [
            f"{self.kind:7} {self.of}: {self.found}.",
            f"{self.why}." if self.why else "",
            self.do and f"{self.do}.",
        ]
        return " ".join(" ".join(part.split()) if number else part for number, part in enumerate(parts) if part)


problem = partial(Finding, "problem")
warning = partial(Finding, "warning")
fact = partial(Finding, "fact")
