"""One whole night in two minutes, on real servers: what people left, the schedule's own slots, two crashes, a report.

`python -m books.night` plays it and exits 1 if anything was lost, doubled or stuck. `plan` is its frame, `play` runs
it, `world` starts what is outside the house, `desk` is what people do, `faults` kills, `live` shows, `judge_…` look at
the records and `report` is what they say.
"""
