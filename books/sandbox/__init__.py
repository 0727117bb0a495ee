"""Stand-ins for what the bookkeeping talks to: seeded servers that speak the real protocols over real sockets.

They serve local runs, tests and the compressed night. Nothing here runs in production.
"""
