"""One provider."""

from __future__ import annotations

from fleet.quota import Quota

QUOTAS = [Quota("model", places=4, reserve=1, because="the provider of a test answers four at once")]
