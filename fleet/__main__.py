"""`python -m fleet`: the command line."""

from fleet.cli import main

main()
