"""What providers allow us at once, as budgets of places that all hosts share (`fleet.quota`)."""

from __future__ import annotations

from fleet.quota import Quota

QUOTAS = [
    Quota(
        "model",  # the parking key of the model's callers, too: `books.clients.MODEL`
        places=10,
        reserve=5,
        because="our tier answers ten requests at once, further ones queue there; half of it absorbs a morning's rush "
        "of people while answers that batch asked for are still on their way (at most a minute)",
    ),
]
