"""`make soak`: the whole fleet under nights on repeat and faults of many kinds, judged for what it lost and what grew.

`house` is the bookkeeping with jobs that misbehave, `processes` starts everything and starts again what ended, `faults`
is what befalls it, `growth` what is counted over time, `invariants` what must hold, `run` plays and `told` says it.
"""
