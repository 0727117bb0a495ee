from datetime import timedelta

from fleet import Entry

every = timedelta(seconds=2)
SCHEDULE = [Entry("greet", every=every, expires=every, because="a reader wants to see something happen soon")]
