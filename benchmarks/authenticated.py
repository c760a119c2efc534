"""
How fast a call with an access token is, beside a consumer that only looks the token up.

    python -m tools benchmark authenticated [--short] [--server fast] [--rounds 7]

The authorization server has issued the token, one row among a thousand. Both look it up in their
own database, in a pool of two threads, each in one process on one core; they take turns. The
project also answers calls without a token, which shows what the token costs. Exits with 1 if one
could not be measured or answered wrongly, and with 3 if the figure is not met.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.calls import TOOLS, report
from benchmarks.contenders import OAUTH, SERVERS, Contender
from benchmarks.goals import US, judge
from benchmarks.messages import STATELESS, TOKEN
from benchmarks.rounds import measure_in_turns
from tools.benchmark import UNMET

CONTENDERS = (
    Contender(
        US,
        "benchmarks.server:application",
        environ=OAUTH,
        variants=(TOKEN, STATELESS),
        tools=("add", "city"),
    ),
    Contender("lean-known", "benchmarks.peers.known:application", environ=OAUTH, variants=(TOKEN,)),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--short", action="store_true", help="three short rounds")
    parser.add_argument("--server", choices=SERVERS, default="plain", help="how uvicorn runs")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    rounds, seconds = (3, 0.6) if options.short else (options.rounds, options.seconds)
    results = measure_in_turns(CONTENDERS, TOOLS, options.server, rounds, seconds)
    report(results)
    if any(result.wrong for result in results):
        return 1
    return 0 if judge(results) else UNMET


if __name__ == "__main__":
    sys.exit(main())
