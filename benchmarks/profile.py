"""
Where the time of a call goes: microseconds of the processor for each step.

    python -m tools benchmark profile [--short] [--server fast] [--rounds 5]

A tool that reads a row is called with a token, without and in a session. The server counts the time
of each step (`benchmarks.steps`). A second server has no such clocks, and shows what they cost.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import statistics
import sys
from collections import Counter
from dataclasses import dataclass, field

from benchmarks.contenders import BY_NAME, OAUTH, SERVERS
from benchmarks.load import Connection, make_calls
from benchmarks.messages import SESSION_TOKEN, TEMPLATES, TOKEN
from benchmarks.servers import RunningServer, pinned
from benchmarks.steps import STEPS

IDS = itertools.count(1_000_000)
CONNECTIONS = 16
REST = "event loop, threads, uvicorn"


@dataclass
class Profile:
    """The microseconds of a call by step, and in all, of each round."""

    variant: str
    steps: list[dict[str, float]] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)  # of the server without clocks

    def round(self, timed: RunningServer, plain: RunningServer, calls: int) -> None:
        before, cpu = steps_of(timed), timed.cpu()
        self.totals.append(self.cost(timed, calls))
        spent = {name: steps_of(timed)[name] - before[name] for name in STEPS}
        found = {name: spent[name] / 1000 / calls for name in STEPS}
        self.steps.append(found | {REST: self.totals[-1] - sum(found.values())})
        self.plain.append(self.cost(plain, calls))
        assert timed.cpu() > cpu

    def cost(self, started: RunningServer, calls: int) -> float:
        """Return the processor time of a call in microseconds, without the warm-up."""
        made = TEMPLATES[self.variant](started.address, "city", {"pk": 7})
        opened = [Connection(started.address, made) for _ in range(CONNECTIONS)]
        before = started.cpu()
        make_calls(opened, IDS, calls)
        spent = started.cpu() - before
        for connection in opened:
            connection.socket.close()
        return spent / calls * 1e6

    def median(self, step: str) -> float:
        return statistics.median(found[step] for found in self.steps)


def steps_of(started: RunningServer) -> Counter[str]:
    connection = http.client.HTTPConnection(*started.address, timeout=60)
    connection.request("GET", "/steps")
    found = Counter(json.loads(connection.getresponse().read()))
    connection.close()
    return found


def measure(server: str, rounds: int, calls: int) -> list[Profile]:
    profiles = [Profile(TOKEN), Profile(SESSION_TOKEN)]
    ours = BY_NAME["django_mcp"]
    with (
        ours.running(server, **OAUTH, BENCHMARK_STEPS="1") as timed,
        ours.running(server, **OAUTH) as plain,
        pinned(),
    ):
        for profile in profiles:
            profile.cost(timed, calls)
            profile.cost(plain, calls)
        for _, profile in itertools.product(range(rounds), profiles):
            profile.round(timed, plain, calls)
    return profiles


def report(profiles: list[Profile]) -> None:
    print(f"| step | {' | '.join(one.variant for one in profiles)} |")
    print("|---" * (len(profiles) + 1) + "|")
    for step in (*STEPS, REST):
        print(f"| {step} | {' | '.join(f'{one.median(step):.0f}' for one in profiles)} |")
    totals = (statistics.median(one.totals) for one in profiles)
    plain = (statistics.median(one.plain) for one in profiles)
    print(f"| in all | {' | '.join(f'{total:.0f}' for total in totals)} |")
    print(f"| without the clocks | {' | '.join(f'{total:.0f}' for total in plain)} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--short", action="store_true", help="two rounds")
    parser.add_argument("--server", choices=SERVERS, default="plain", help="how uvicorn runs")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=1_000, help="of a round")
    options = parser.parse_args()
    rounds, calls = (2, 200) if options.short else (options.rounds, options.calls)
    report(measure(options.server, rounds, calls))
    return 0


if __name__ == "__main__":
    sys.exit(main())
