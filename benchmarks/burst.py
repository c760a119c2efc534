"""
What it costs to store one call that sends 10,000 progress messages as fast as it can.

    python -m tools benchmark burst [--short] [--only sqlite,postgres] [--rounds 5]

Two workers of uvicorn share a database. The call runs at one of them, in revision 2025-11-25, in a
thread or in the event loop. Its time is compared with `bulk_create` of the same rows in the same
process. In a second run the reader cuts its connection halfway and resumes at the other worker.
Exits with 1 if a message is lost, duplicated or out of order, and with 3 if a figure is not met.
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
from benchmarks.messages import JSON, WrongResponse, open_session
from benchmarks.servers import RunningServer, pinned
from benchmarks.stream_reader import Reader, ReceivedEvent
from tools.benchmark import UNMET
from tools.database_servers import postgres

COUNT = 10_000
HALF = COUNT // 2
DATABASES = {"sqlite": nullcontext, "postgres": postgres}
TOOLS = {"burst": "a sync tool", "burst_async": "an async tool"}
IDS = itertools.count(1)
# At most: times bulk_create, milliseconds that a message waits for its transaction to begin, and
# milliseconds from the first message to the first event of the reader.
RATIO, HELD, FIRST = 2.0, 50.0, 150.0


@dataclass
class Result:
    """A tool on a database, and the figures of each round."""

    database: str
    tool: str
    seconds: list[float] = field(default_factory=list)  # from the first message to the last commit
    ratios: list[float] = field(default_factory=list)  # to bulk_create in groups of the same sizes
    ratios_in_one: list[float] = field(default_factory=list)  # and in one transaction
    held: list[float] = field(default_factory=list)  # the longest that a message waited, in ms
    first: list[float] = field(default_factory=list)  # until the reader had an event, in ms
    groups: list[int] = field(default_factory=list)
    rest: list[int] = field(default_factory=list)  # events from the other worker

    def measure(self, first: RunningServer, second: RunningServer, headers: JSON) -> None:
        received = list(Reader(first.address, headers, self.call()))
        check(received, 1)
        self.take(received, page(first, "/burst"), page(first, "/bulk"))
        self.rest.append(resumed(first, second, headers, self.call()))

    def call(self) -> JSON:
        arguments = {"name": self.tool, "arguments": {"count": COUNT}}
        params = arguments | {"_meta": {"progressToken": "burst"}}
        return {"jsonrpc": "2.0", "id": next(IDS), "method": "tools/call", "params": params}

    def take(self, received: list[ReceivedEvent], burst: Any, bulk: Any) -> None:
        sent, groups = burst["sent"], burst["groups"]
        took = groups[-1]["ended"] - sent[0]
        self.seconds.append(took)
        self.ratios.append(took / bulk["in groups"])
        self.ratios_in_one.append(took / bulk["in one"])
        waited = (group["begun"] - sent[group["first"] - 1] for group in groups)
        self.held.append(max(waited) * 1000)
        self.first.append((received[0].at - sent[0]) * 1000)
        self.groups.append(len(groups))

    @property
    def figures(self) -> list[tuple[str, list[float], float]]:
        return [
            ("times bulk_create of the same groups", self.ratios, RATIO),
            ("ms that a message waits at most", self.held, HELD),
            ("ms until the reader has the first event", self.first, FIRST),
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
            rounds = ", ".join(f"{one:.2f}" for one in found)
            lines.append(f"  {verdict}: {median(found):.2f} {what} (at most {most:g}; {rounds})")
        return "\n".join(lines)


def check(received: list[ReceivedEvent], after: int) -> None:
    """Check that each message came once and in order from `after` on, and then the response."""
    numbers = [int(one.id.split("-")[1]) for one in received]
    messages = [json.loads(one.data) for one in received]
    steps = [one["params"]["progress"] for one in messages[:-1]]
    if steps != list(range(after, COUNT + 1)) or numbers != list(range(after, COUNT + 2)):
        raise WrongResponse(f"After {after - 1}: {received[:2]} ... {received[-2:]}")
    if messages[-1]["result"]["content"][0]["text"] != str(COUNT):
        raise WrongResponse(f"The response is {received[-1].data[:500]}")


def resumed(first: RunningServer, second: RunningServer, headers: JSON, call: JSON) -> int:
    """Cut the connection halfway, and return the number of events from the other worker."""
    reader = Reader(first.address, headers, call)
    received = list(itertools.islice(reader, HALF))
    reader.close()
    rest = list(Reader(second.address, headers | {"Last-Event-ID": received[-1].id}))
    check(received + rest, 1)
    return len(rest)


def page(started: RunningServer, path: str) -> Any:
    connection = http.client.HTTPConnection(*started.address, timeout=60)
    connection.request("GET", path)
    found = json.loads(connection.getresponse().read())
    connection.close()
    return found


@contextmanager
def workers(database: str) -> Iterator[tuple[RunningServer, RunningServer]]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-"))
        environ = dict(stack.enter_context(DATABASES[database]()) or {})
        environ |= {"BENCHMARK_DATABASE": database, "BENCHMARK_BURST_PAGES": "1"}
        environ |= {"BENCHMARK_FOLDER": str(Path(folder))}
        first, second = (
            stack.enter_context(BY_NAME["django_mcp"].running(**environ)) for _ in range(2)
        )
        yield first, second


def measure(database: str, rounds: int) -> list[Result]:
    results = [Result(database, tool) for tool in TOOLS]
    with workers(database) as (first, second), pinned():
        headers = open_session(first.address)
        for result in results:
            for _ in range(rounds):
                result.measure(first, second, headers)
            print(result, flush=True)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--short", action="store_true", help="one round")
    parser.add_argument("--only", help="sqlite or postgres")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    found: list[Result] = []
    for database in DATABASES:
        if options.only in (None, database):
            found += measure(database, 1 if options.short else options.rounds)
    return 0 if all(result.is_met for result in found) else UNMET


if __name__ == "__main__":
    sys.exit(main())
