"""
How fast a call with an access token is answered, beside a consumer that only looks the token up.

    python -m tools benchmark authenticated [--short] [--server fast] [--rounds 7]

The token is one that the authorization server has issued, a row among a thousand. Both look it up
in a database of their own and in the same pool of two threads, each in one process on one core;
they take turns. The project also answers calls without a token, which tells what the token costs.
Exits with 1 if anybody could not be measured or answered wrongly, with 3 if the figure is not met.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.calls import ADD, US, judge, tell
from benchmarks.contenders import OAUTH, SERVERS, Contender
from benchmarks.lanes import race
from benchmarks.wires import STATELESS, TOKEN
from tools.benchmark import UNMET

FLOOR = "lean-known"
CONTENDERS = (
    Contender(US, "benchmarks.server:application", environ=OAUTH, wires=(TOKEN, STATELESS)),
    Contender(FLOOR, "benchmarks.peers.known:application", environ=OAUTH, wires=(TOKEN,)),
)
FIGURES = ((TOKEN, FLOOR, 0.8),)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--short", action="store_true", help="three short rounds")
    parser.add_argument("--server", choices=SERVERS, default="plain", help="how uvicorn runs")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    rounds, seconds = (3, 0.6) if options.short else (options.rounds, options.seconds)
    lanes = race(CONTENDERS, {"add": ADD}, options.server, rounds, seconds)
    tell(lanes)
    if any(lane.wrong for lane in lanes):
        return 1
    return 0 if judge(lanes, FIGURES) else UNMET


if __name__ == "__main__":
    sys.exit(main())
