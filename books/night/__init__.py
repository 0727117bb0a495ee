"""One whole night in two minutes, on real servers: what customers left, the schedule's own slots, two crashes, a report.

`python -m books.night` plays it and exits 1 if anything was lost, doubled or stuck. `play` runs it, `world` starts what is
outside the house, `desk` is what people do, `faults` kills, `live` shows, `facts` collects and `report` judges.
"""
