"""The janitor, and how often it comes."""

from __future__ import annotations

from datetime import timedelta

from fleet import Entry

EVERY = timedelta(seconds=3)
SCHEDULE = [Entry("end_lost_parcels", every=EVERY, expires=EVERY, because="rows whose worker is gone wait for it")]
