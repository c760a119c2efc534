"""
Whether anything grows in a server that works for a long time.

    python -m tools benchmark soak [--short] [--minutes 30] [--draw]

One uvicorn worker serves a mixed load: calls with a token, calls that the client cuts, sessions
that are opened and deleted, streams that are opened, cut and resumed, progress, and subscriptions.
Every response is checked. Memory, objects in use, file descriptors, database connections, threads
and asyncio tasks are sampled. The first third of the time warms the server up. Then the median of
the last third is compared with that of the second. `--draw` stores the graph for the
documentation. Exits with 1 if a response is wrong, and with 3 if something grew.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.charts import Panel, drawn, write
from benchmarks.contenders import BY_NAME, OAUTH, SERVERS
from benchmarks.servers import RunningServer, pinned
from benchmarks.soak_load import Clients
from tools.benchmark import UNMET

SAMPLES = 180  # at most one a second
MOST_TYPES = 8  # that are listed
MIB = 2**20


@dataclass
class Series:
    """A figure over time, and by how much it may grow: a share, and a number beside it."""

    name: str
    unit: str
    share: float
    number: float
    values: list[float] = field(default_factory=list)

    @property
    def thirds(self) -> tuple[float, float]:
        """Return the median of the second third, and that of the last one."""
        third = len(self.values) // 3
        return (
            statistics.median(self.values[third : 2 * third]),
            statistics.median(self.values[2 * third :]),
        )

    @property
    def is_met(self) -> bool:
        before, after = self.thirds
        return after <= before * (1 + self.share) + self.number

    def __str__(self) -> str:
        before, after = self.thirds
        verdict = "met" if self.is_met else "UNMET"
        most = before * (1 + self.share) + self.number
        return (
            f"{verdict}: {self.name}: {after:.1f} in the last third, {before:.1f} in the second"
            f" (at most {most:.1f})"
        )


def all_series() -> list[Series]:
    """Return what is sampled. The load itself varies by a few connections and tasks."""
    return [
        Series("memory", "MiB of memory (RSS)", 0.02, 0.5),
        Series("descriptors", "open file descriptors", 0.0, 4),
        Series("connections", "open database connections", 0.0, 1),
        Series("threads", "threads", 0.0, 1),
        Series("tasks", "asyncio tasks", 0.0, 4),
    ]


def sample(started: RunningServer) -> list[float]:
    found = state(started)
    folder = Path(f"/proc/{started.process.pid}")
    return [
        started.memory() / MIB,
        len(list((folder / "fd").iterdir())),
        found["connections"],
        len(list((folder / "task").iterdir())),
        found["tasks"],
    ]


def state(started: RunningServer, query: str = "") -> dict[str, Any]:
    connection = http.client.HTTPConnection(*started.address, timeout=60)
    connection.request("GET", f"/state{query}")
    found: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return found


def types(started: RunningServer) -> Counter[str]:
    """Return how many objects of each type the server has after a garbage collection."""
    return Counter(state(started, "?types")["types"])


def measure(minutes: float, server: str) -> tuple[list[Series], Clients, float]:
    series, seconds = all_series(), minutes * 60
    every = max(seconds / SAMPLES, 1.0)
    given = OAUTH | {"BENCHMARK_STATE": "1", "BENCHMARK_RESOURCES": "1"}
    with BY_NAME["django_mcp"].running(server, **given) as started, pinned():
        clients = Clients(started.address)
        clients.start()
        began, counted = time.monotonic(), Counter[str]()
        while (passed := time.monotonic() - began) < seconds:
            time.sleep(every)
            for one, value in zip(series, sample(started), strict=True):
                one.values.append(value)
            if not counted and passed > seconds / 3:
                counted = types(started)
        report_types(counted, types(started))
        clients.stop()
        if clients.failures:
            print(started.log_tail())
    return series, clients, every


def report_types(before: Counter[str], after: Counter[str]) -> None:
    """Print the types of which there are more objects than after the warm-up."""
    grown = Counter({name: after[name] - count for name, count in before.items()})
    listed = ", ".join(f"{number:+} {name}" for name, number in grown.most_common(MOST_TYPES))
    print(
        f"Objects since the first third: {sum(after.values()) - sum(before.values()):+}: {listed}"
    )


def draw(series: Sequence[Series], every: float, minutes: float, about: str) -> Path:
    panels = [
        Panel(
            one.unit,
            {one.name: [(place * every / 60, value) for place, value in enumerate(one.values)]},
            height=150 if one.name == "memory" else 80,
        )
        for one in series
    ]
    title = f"A server under a mixed load for {minutes:g} minutes"
    return write("soak", drawn(title, about, "minutes", panels, is_log=False))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--short", action="store_true", help="one minute")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--server", choices=SERVERS, default="plain", help="how uvicorn runs")
    parser.add_argument("--draw", action="store_true", help="store the graph for the documentation")
    options = parser.parse_args()
    minutes = 1.0 if options.short else options.minutes
    series, clients, every = measure(minutes, options.server)
    done = ", ".join(f"{count} {name}" for name, count in sorted(clients.done.items()))
    print(f"In {minutes:g} minutes: {done}; {len(clients.failures)} wrong responses")
    print("\n".join((*clients.failures[:5], *map(str, series))))
    if options.draw:
        about = f"{'. '.join(map(str, series))}.".replace("met: ", "")
        print(draw(series, every, minutes, about))
    if clients.failures or not clients.done:
        return 1
    return 0 if all(one.is_met for one in series) else UNMET


if __name__ == "__main__":
    sys.exit(main())
