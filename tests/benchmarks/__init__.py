"""Figures of the broker beside stock Dramatiq's and huey's, from one run: `make bench`. Nothing here is asserted.

One module a claim; each says what it measures and how, and is run by `tests.benchmarks.__main__`. Absolute figures do
not travel between machines, ratios within one run do: contenders take turns, and each figure is a median.
"""
