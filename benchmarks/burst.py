"""
One call that says 10,000 things as fast as it can: what it costs to write all of them down.

    python -m tools benchmark burst [--short] [--only sqlite,postgres] [--rounds 5]

Two workers of uvicorn share a database. The call runs on one of them, over 2025-11-25, in a thread
or in the loop. Its time is held against `bulk_create` of the same rows in the same process, which
has them all at once. In a second run the reader cuts its connection halfway and goes on at the
other worker. Exits with 1 if anything is lost, twice or out of order, and with 3 if a figure is not
met.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.contenders import BY_NAME
from benchmarks.following import Came, Reader
from benchmarks.running import Running, pinned
from benchmarks.wires import JSON, Wrong, begin
from tools.benchmark import UNMET
from tools.database_servers import postgres

COUNT = 10_000
HALF = COUNT // 2
DATABASES = {"sqlite": nullcontext, "postgres": postgres}
TOOLS = {"burst": "a sync tool", "burst_async": "an async tool"}
IDS = itertools.count(1)
# At most: times bulk_create, milliseconds that a message waits for its transaction to begin, and
# milliseconds from the first word to the reader's first event.
RATIO, HELD, FIRST = 2.0, 50.0, 150.0


@dataclass
class Lane:
    """A tool on a database, and what each round of it gave."""

    database: str
    tool: str
    seconds: list[float] = field(default_factory=list)  # from the first word to the last commit
    ratios: list[float] = field(default_factory=list)  # to bulk_create in groups of the same sizes
    ratios_in_one: list[float] = field(default_factory=list)  # and in one transaction
    held: list[float] = field(default_factory=list)  # the longest that a message waited, in ms
    first: list[float] = field(default_factory=list)  # until the reader had one event, in ms
    groups: list[int] = field(default_factory=list)
    rest: list[int] = field(default_factory=list)  # events that came from the other worker

    def measure(self, first: Running, second: Running, headers: JSON) -> None:
        came = list(Reader(first.address, headers, self.call()))
        check(came, 1)
        self.take(came, page(first, "/burst"), page(first, "/bulk"))
        self.rest.append(resumed(first, second, headers, self.call()))

    def call(self) -> JSON:
        arguments = {"name": self.tool, "arguments": {"count": COUNT}}
        params = arguments | {"_meta": {"progressToken": "burst"}}
        return {"jsonrpc": "2.0", "id": next(IDS), "method": "tools/call", "params": params}

    def take(self, came: list[Came], burst: Any, bulk: Any) -> None:
        said, groups = burst["said"], burst["groups"]
        took = groups[-1]["ended"] - said[0]
        self.seconds.append(took)
        self.ratios.append(took / bulk["in groups"])
        self.ratios_in_one.append(took / bulk["in one"])
        waited = (group["begun"] - said[group["first"] - 1] for group in groups)
        self.held.append(max(waited) * 1000)
        self.first.append((came[0].at - said[0]) * 1000)
        self.groups.append(len(groups))

    @property
    def figures(self) -> list[tuple[str, list[float], float]]:
        return [
            ("times bulk_create of the same groups", self.ratios, RATIO),
            ("ms that a message waits at most", self.held, HELD),
            ("ms until the first event is there", self.first, FIRST),
        ]

    @property
    def is_met(self) -> bool:
        return all(statistics.median(found) <= most for _, found, most in self.figures)

    def __str__(self) -> str:
        def median(found: list[Any]) -> float:
            return statistics.median(found)

        lines = [
            f"{self.database}, {TOOLS[self.tool]}: {COUNT} messages in {median(self.seconds):.3f}"
            f" s, {median(self.groups):.0f} groups, {median(self.ratios_in_one):.2f} times"
            " bulk_create in one; resumed at the other worker: exactly the rest,"
            f" {', '.join(map(str, self.rest))} events"
        ]
        for what, found, most in self.figures:
            verdict = "met" if median(found) <= most else "UNMET"
            told = ", ".join(f"{one:.2f}" for one in found)
            lines.append(f"  {verdict}: {median(found):.2f} {what} (at most {most:g}; {told})")
        return "\n".join(lines)


def check(came: list[Came], after: int) -> None:
    """Each message once and in order, from that number on, and then the answer."""
    numbers = [int(one.id.split("-")[1]) for one in came]
    told = [json.loads(one.data) for one in came]
    steps = [one["params"]["progress"] for one in told[:-1]]
    if steps != list(range(after, COUNT + 1)) or numbers != list(range(after, COUNT + 2)):
        raise Wrong(f"After {after - 1} came {len(came)} events: {came[:2]} ... {came[-2:]}")
    if told[-1]["result"]["content"][0]["text"] != str(COUNT):
        raise Wrong(f"The answer is {came[-1].data[:500]}")


def resumed(first: Running, second: Running, headers: JSON, call: JSON) -> int:
    """How many events came from the other worker, after the connection was cut halfway."""
    reader = Reader(first.address, headers, call)
    came = list(itertools.islice(reader, HALF))
    reader.cut()
    rest = list(Reader(second.address, headers | {"Last-Event-ID": came[-1].id}))
    check(came + rest, 1)
    return len(rest)


def page(started: Running, path: str) -> Any:
    connection = http.client.HTTPConnection(*started.address, timeout=60)
    connection.request("GET", path)
    told = json.loads(connection.getresponse().read())
    connection.close()
    return told


@contextmanager
def workers(database: str) -> Iterator[tuple[Running, Running]]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-"))
        environ = dict(stack.enter_context(DATABASES[database]()) or {})
        environ |= {"BENCHMARK_DATABASE": database, "BENCHMARK_WITNESS": "1"}
        environ |= {"BENCHMARK_FOLDER": str(Path(folder))}
        first, second = (
            stack.enter_context(BY_NAME["django_mcp"].running(**environ)) for _ in range(2)
        )
        yield first, second


def measure(database: str, rounds: int) -> list[Lane]:
    lanes = [Lane(database, tool) for tool in TOOLS]
    with workers(database) as (first, second), pinned():
        headers = begin(first.address)
        for lane in lanes:
            for _ in range(rounds):
                lane.measure(first, second, headers)
            print(lane, flush=True)
    return lanes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--short", action="store_true", help="one round")
    parser.add_argument("--only", help="sqlite or postgres")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    found: list[Lane] = []
    for database in DATABASES:
        if options.only in (None, database):
            found += measure(database, 1 if options.short else options.rounds)
    return 0 if all(lane.is_met for lane in found) else UNMET


if __name__ == "__main__":
    sys.exit(main())
