"""`python -m tests.nightsim [--seeds 40] [--cores 2,4]`: the tables of docs/decisions/0015; minutes of one core."""

from __future__ import annotations

import argparse

from tests.nightsim.regrets import by_kind, nights, table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.nightsim")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--cores", default="2,4")
    asked = parser.parse_args()
    for cores in map(int, asked.cores.split(",")):
        found = nights(cores, range(asked.seeds), compared=True, guards=True)
        print(f"\n{cores} cores, {len(found)} nights of ten kinds, median / worst\n")
        print("\n".join(table(found)))
        print("\nthe balancer's regret by kind of night\n")
        print("\n".join(by_kind(found)), flush=True)


if __name__ == "__main__":
    main()
