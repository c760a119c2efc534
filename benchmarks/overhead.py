"""
What optional features add to a call: the server's processor time with and without each of them.

    python -m tools benchmark overhead [--short] [--only audit] [--server fast] [--rounds 9]

For each tool, one server runs without the features and one with each, all at the same time, and
they take turns. Every call is made over 16 connections, and every response is checked. The figure
is the processor time of the server for a call, user and system, which depends little on other
programs. An overhead is the median of the ratios within the rounds. Exits with 1 if a response is
wrong, and with 3 if a figure is not met.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.contenders import BY_NAME, SERVERS
from benchmarks.load import Connection, make_calls
from benchmarks.messages import JSON, CallTemplate
from benchmarks.scale import add, call, call_city, text_of
from benchmarks.servers import RunningServer, pinned
from tools.benchmark import UNMET

CONNECTIONS = 16
IDS = itertools.count(1_000_000)
WITHOUT = "without"
# Another city than the one that is read, whose population is checked.
grow = call("grow", {"pk": 8}, lambda it: text_of(it) == "8")
PLAIN, READING, WRITING = "async, no database", "sync, reads a row", "sync, saves a row"
TOOLS: dict[str, Callable[[tuple[str, int], int], CallTemplate]] = {
    PLAIN: add,
    READING: call_city,
    WRITING: grow,
}


@dataclass(frozen=True)
class Feature:
    """A feature, how the measured project turns it on, and what it may add to a call."""

    environ: JSON
    most: float  # as a share of the processor time of a plain call


FEATURES = {
    "audit": Feature({"BENCHMARK_AUDIT": "1"}, 0.15),
    # A limit that is never reached, counted in the memory of the process.
    "throttle": Feature({"BENCHMARK_THROTTLE": "memory"}, 0.10),
}
if redis := os.environ.get("BENCHMARK_CACHE"):  # the URL of a Redis, which counts instead
    FEATURES["throttle in Redis"] = Feature({"BENCHMARK_THROTTLE": redis}, 0.10)


@dataclass
class Measured:
    """The calls of one tool at one server, and what each round cost: microseconds for a call."""

    server: RunningServer
    template: CallTemplate
    costs: list[float] = field(default_factory=list)

    def round(self, calls: int) -> None:
        # Opened anew, because uvicorn closes idle connections.
        opened = [Connection(self.server.address, self.template) for _ in range(CONNECTIONS)]
        try:
            make_calls(opened, IDS, calls // 5)
            before = self.server.cpu()
            make_calls(opened, IDS, calls)
            self.costs.append((self.server.cpu() - before) / calls * 1e6)
        finally:
            for connection in opened:
                connection.socket.close()


def measure(
    features: list[str], how: str, rounds: int, calls: int
) -> dict[tuple[str, str], Measured]:
    """Return what was measured, by the tool and the feature."""
    with ExitStack() as stack:
        servers = {}
        for name in (WITHOUT, *features):
            environ = {} if name == WITHOUT else FEATURES[name].environ
            environ = environ | {"BENCHMARK_RESOURCES": "1"}
            environ["BENCHMARK_FOLDER"] = stack.enter_context(tempfile.TemporaryDirectory())
            running = BY_NAME["django_mcp"].running(how, **environ)
            servers[name] = stack.enter_context(running)
        found = {
            (tool, name): Measured(server, make(server.address, 0))
            for tool, make in TOOLS.items()
            for name, server in servers.items()
        }
        with pinned():
            for _ in range(rounds):
                for one in found.values():
                    one.round(calls)
        return found


def report(found: dict[tuple[str, str], Measured], features: list[str]) -> bool:
    """Print the figures, and return whether all that have a limit are met."""
    names = (WITHOUT, *features)
    print("\n| microseconds of the processor for a call | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for tool in TOOLS:
        costs = (statistics.median(found[tool, name].costs) for name in names)
        print(f"| {tool} | " + " | ".join(f"{cost:,.0f}" for cost in costs) + " |")
    print()
    are_met = True
    for name, tool in itertools.product(features, TOOLS):
        pairs = zip(found[tool, name].costs, found[tool, WITHOUT].costs, strict=True)
        added = statistics.median(one / other for one, other in pairs) - 1
        most = FEATURES[name].most
        is_met = added <= most
        are_met &= is_met
        print(f"{'met' if is_met else 'UNMET'}: {name}, {tool}: {added:+.1%} (at most {most:.0%})")
    return are_met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--short", action="store_true", help="three short rounds")
    parser.add_argument("--only", help="names of features, separated by commas")
    parser.add_argument("--server", choices=SERVERS, default="plain", help="how uvicorn runs")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=1_500, help="of a round")
    options = parser.parse_args()
    features = options.only.split(",") if options.only else list(FEATURES)
    rounds, calls = (3, 500) if options.short else (options.rounds, options.calls)
    found = measure(features, options.server, rounds, calls)
    return 0 if report(found, features) else UNMET


if __name__ == "__main__":
    sys.exit(main())
