from datetime import timedelta

from fleet import Entry

SECOND = timedelta(seconds=1)
SCHEDULE = [Entry("tick", actor="tick_bench", every=SECOND, expires=SECOND, because="each slot that fires is counted")]
