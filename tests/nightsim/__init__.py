"""A simulator of the night, in which the balancer's own rule is tried: `python -m tests.nightsim`."""
