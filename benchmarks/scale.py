"""
What a call costs the more of something there is: tools, rows, bytes, connections, workers.

    python -m tools benchmark scale [--short] [--only tools,rows] [--long] [--draw] [--rounds 5]

For each curve, one server runs for each number, all at the same time, and they take turns. The
figure is the processor time of the server for a call, which depends little on other programs. Every
response is checked. A curve is to be flat: at most 1.25 times from its first number to its last, or
1.15 times for each tenfold. Where the response itself grows, the time for each unit of it must not
grow. `--long` adds ten million rows. `--draw` stores the charts for the documentation. Exits with 1
if a response is wrong, and with 3 if a figure is not met.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from benchmarks.charts import Panel, drawn, number, write
from benchmarks.contenders import BY_NAME, SERVERS
from benchmarks.load import Connection, make_calls
from benchmarks.messages import (
    CLIENT,
    JSON,
    LIST,
    NUMBER,
    PREFIX,
    STATELESS,
    CallTemplate,
    WrongResponse,
    in_session,
    stateless,
    template,
)
from benchmarks.servers import RunningServer, pinned
from benchmarks.streams import raise_limit
from tools.benchmark import UNMET

CONNECTIONS = 16
PAGE = 100  # tools
MOST_BYTES = 20_000_000  # of all requests or responses of a round, where these grow
FLAT, TENFOLD = 1.25, 1.15
IDS = itertools.count(1_000_000)
ADD: JSON = {"a": NUMBER, "b": 1}
Address = tuple[str, int]
Make = Callable[[Address, int], CallTemplate]


@dataclass
class Line:
    """A kind of call, and what it cost: microseconds by the number that grows, of each round."""

    name: str
    make: Make
    environ: JSON = field(default_factory=dict)
    is_linear: bool = False  # because the request or the response grows
    start: int = 0  # the number from which on it is judged
    costs: dict[int, list[float]] = field(default_factory=dict)

    @property
    def medians(self) -> dict[int, float]:
        return {size: statistics.median(costs) for size, costs in self.costs.items()}

    def ratio(self, size: int, first: int) -> float:
        """Return how much more a call costs with `size` than with `first`: the median of rounds."""
        pairs = zip(self.costs[size], self.costs[first], strict=True)
        return statistics.median(one / other for one, other in pairs)

    @property
    def verdict(self) -> tuple[bool, str]:
        sizes = [size for size in self.costs if size >= self.start]
        first, before, last = sizes[0], sizes[-2], sizes[-1]
        if self.is_linear:
            found = self.ratio(last, before) / (last / before)
            text = f"{found:.2f} times for each unit from {number(before)} to {number(last)}"
            return found <= FLAT, f"linear, {text} (at most {FLAT})"
        positive = next(filter(None, sizes))
        found = self.ratio(last, first)
        tenfold = found ** (1 / max(math.log10(last / positive), 1))
        text = f"{found:.2f} times from {number(first)} to {number(last)}"
        if found <= FLAT:
            return True, f"flat, {text} (at most {FLAT})"
        how = f"{text}, {tenfold:.2f} times for each tenfold (at most {TENFOLD})"
        return tenfold <= TENFOLD, ("logarithmic, " if tenfold <= TENFOLD else "growing, ") + how


@dataclass
class Curve:
    """What grows, its numbers, and the calls that are measured."""

    name: str
    title: str
    label: str
    sizes: Sequence[int]
    lines: Sequence[Line]
    variable: str = ""  # of the environment, that has the number
    is_log: bool = False  # the axis of the costs

    def measure(self, server: str, rounds: int, calls: int) -> None:
        with ExitStack() as stack:
            measured = list(self.start(stack, server))
            with pinned():
                for _ in range(rounds):
                    for one in measured:
                        one.round(calls)

    def start(self, stack: ExitStack, server: str) -> Iterator[Measured]:
        servers: dict[tuple[int, str], list[RunningServer]] = {}
        for size, line in itertools.product(self.sizes, self.lines):
            key = (size, json.dumps(line.environ))
            if key not in servers:
                environ = line.environ | ({self.variable: str(size)} if self.variable else {})
                environ["BENCHMARK_FOLDER"] = stack.enter_context(tempfile.TemporaryDirectory())
                count = size if self.name == "workers" else 1
                servers[key] = [
                    stack.enter_context(BY_NAME["django_mcp"].running(server, **environ))
                    for _ in range(count)
                ]
            workers = [(worker, line.make(worker.address, size)) for worker in servers[key]]
            connections = size if self.name == "connections" else CONNECTIONS
            yield Measured(line, size, workers, connections)

    def draw(self) -> Any:
        points = {
            line.name: [(size, cost) for size, cost in line.medians.items() if size]
            for line in self.lines
        }
        panel = Panel("microseconds of the server's processor for a call", points, self.is_log)
        about = "; ".join(f"{line.name}: {line.verdict[1]}" for line in self.lines)
        return write(f"scale-{self.name}", drawn(self.title, about, self.label, [panel], True))

    def __str__(self) -> str:
        sizes = [number(size) for size in self.sizes]
        lines = [
            f"\n{self.title}, in microseconds of the server's processor for a call",
            f"\n| {self.label} | {' | '.join(sizes)} |",
            "|---" * (len(sizes) + 1) + "|",
        ]
        for line in self.lines:
            cells = " | ".join(f"{cost:,.0f}" for cost in line.medians.values())
            lines.append(f"| {line.name} | {cells} |")
        lines.append("")
        for line in self.lines:
            is_met, text = line.verdict
            lines.append(f"{'met' if is_met else 'UNMET'}: {self.name}, {line.name}: {text}")
        return "\n".join(lines)


@dataclass
class Measured:
    """A line at one number, and the workers that serve it, each with the request to it."""

    line: Line
    size: int
    workers: Sequence[tuple[RunningServer, CallTemplate]]
    connections: int

    def round(self, calls: int) -> None:
        calls = max(calls, 2 * self.connections)
        if self.line.is_linear:
            calls = min(calls, max(MOST_BYTES // self.size, 10))
        # Opened anew, because uvicorn closes idle connections.
        turns = itertools.islice(itertools.cycle(self.workers), self.connections)
        opened = [Connection(worker.address, made) for worker, made in turns]
        try:
            make_calls(opened, IDS, max(len(opened), calls // 10))
            before = self.cpu()
            make_calls(opened, IDS, calls)
            cost = (self.cpu() - before) / calls * 1e6
            self.line.costs.setdefault(self.size, []).append(cost)
        finally:
            for connection in opened:
                connection.socket.close()

    def cpu(self) -> float:
        return sum(worker.cpu() for worker, _ in self.workers)


# The calls.


@dataclass(frozen=True)
class Checked(CallTemplate):
    """A request whose result is checked by a function."""

    is_right: Callable[[JSON], bool] = bool

    def check(self, answer: bytes, number: int) -> None:
        message = json.loads(answer)
        result = message.get("result") or {}
        is_error = message.get("id") != number or result.get("isError")
        if is_error or not self.is_right(result):
            raise WrongResponse(f"The response to call {number} is {answer[:500]!r}")


def call(tool: str, arguments: JSON, is_right: Callable[[JSON], bool]) -> Make:
    def make(address: Address, size: int) -> CallTemplate:
        made = stateless(address, tool, arguments)
        return Checked(tool, made.head, made.body, is_right)

    return make


def add(address: Address, size: int) -> CallTemplate:
    return stateless(address, "add", ADD)


def add_in_session(address: Address, size: int) -> CallTemplate:
    return in_session(address, "add", ADD)


def list_of(most: int) -> Make:
    """Return a list of tools, of which a page has at most that many."""
    return lambda address, size: stateless(address, LIST, {"count": min(size, most)})


def read(address: Address, size: int) -> CallTemplate:
    """Return a `resources/read` of the city 7."""
    uri, method = "model://benchmarks/city/7", "resources/read"
    meta = {"protocolVersion": STATELESS, "clientCapabilities": {}, "clientInfo": CLIENT}
    params = {"uri": uri, "_meta": {PREFIX + key: value for key, value in meta.items()}}
    headers = {"MCP-Protocol-Version": STATELESS, "Mcp-Method": method, "Mcp-Name": uri}
    made = template(address, headers, params, method)
    return Checked(method, made.head, made.body, lambda it: "City 7" in it["contents"][0]["text"])


def length(address: Address, size: int) -> CallTemplate:
    return call("length", {"text": "x" * size}, lambda it: text_of(it) == str(size))(address, size)


def repeat(address: Address, size: int) -> CallTemplate:
    return call("repeat", {"count": size}, lambda it: text_of(it) == "x" * size)(address, size)


def text_of(result: JSON) -> str:
    return str(result["content"][0]["text"])


grow = call("grow", {"pk": 7}, lambda it: text_of(it) == "7")
search = call("search_city", {}, lambda it: len(it["structuredContent"]["results"]) == 20)


# The curves.


def all_curves(is_short: bool, is_long: bool) -> list[Curve]:
    with_rows = {"BENCHMARK_RESOURCES": "1"}
    return [
        Curve(
            "tools",
            "Calls and lists by the number of tools",
            "tools",
            (10, 200, 500) if is_short else (10, 100, 500, 2_000),
            [
                Line("tools/call", add),
                Line("tools/list, one page of all", list_of(10_000), is_linear=True),
                Line(
                    f"tools/list, pages of {PAGE}",
                    list_of(PAGE),
                    {"BENCHMARK_PAGE_SIZE": str(PAGE)},
                    start=PAGE + 1,  # below, there is no next page and no cursor
                ),
            ],
            "BENCHMARK_TOOLS",
            is_log=True,
        ),
        Curve(
            "sessions",
            "A call in a session by the number of stored sessions",
            "sessions",
            (10, 1_000) if is_short else (10, 1_000, 10_000, 100_000),
            [Line("tools/call in a session", add_in_session)],
            "BENCHMARK_SESSIONS",
        ),
        Curve(
            "subscriptions",
            "A call by the number of subscriptions to rows",
            "subscriptions",
            (0, 10, 1_000) if is_short else (0, 10, 100, 1_000, 10_000),
            [
                # Without any subscription, nothing is recorded, which is another case.
                Line("tools/call", add, with_rows, start=10),
                Line("a tool that saves a subscribed row", grow, with_rows, start=10),
            ],
            "BENCHMARK_SUBSCRIPTIONS",
        ),
        Curve(
            "rows",
            "Reading rows by the size of the table",
            "rows",
            (1_000, 100_000)
            if is_short
            else (1_000, 10_000, 100_000, 1_000_000, *((10_000_000,) if is_long else ())),
            [
                Line("a tool that reads a row", call_city, with_rows),
                Line("resources/read", read, with_rows),
                Line("search, the first 20 rows", search, with_rows),
            ],
            "BENCHMARK_ROWS",
        ),
        Curve(
            "payload",
            "A call by the size of its argument or its result",
            "bytes",
            (100, 100_000) if is_short else tuple(10**power for power in range(2, 8)),
            [
                Line("argument", length, {"BENCHMARK_PAYLOAD": "1"}, is_linear=True),
                Line("result", repeat, {"BENCHMARK_PAYLOAD": "1"}, is_linear=True),
            ],
            is_log=True,
        ),
        Curve(
            "connections",
            "A call by the number of connections that call at the same time",
            "connections",
            (1, 100) if is_short else (1, 10, 100, 1_000),
            [Line("tools/call", add)],
        ),
        Curve(
            "workers",
            "A call by the number of workers that share a SQLite file",
            "workers",
            (1, 2),
            [Line("tools/call", add), Line("tools/call in a session", add_in_session)],
        ),
    ]


def call_city(address: Address, size: int) -> CallTemplate:
    return stateless(address, "city", {"pk": 7})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--short", action="store_true", help="small numbers, two rounds")
    parser.add_argument("--long", action="store_true", help="ten million rows too")
    parser.add_argument("--only", help="names of curves, separated by commas")
    parser.add_argument("--server", choices=SERVERS, default="plain", help="how uvicorn runs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=400, help="of a round")
    parser.add_argument(
        "--draw", action="store_true", help="store the charts for the documentation"
    )
    options = parser.parse_args()
    raise_limit(4_000)
    are_met = True
    for curve in all_curves(options.short, options.long):
        if options.only and curve.name not in options.only.split(","):
            continue
        curve.measure(options.server, 2 if options.short else options.rounds, options.calls)
        print(curve, flush=True)
        are_met &= all(line.verdict[0] for line in curve.lines)
        if options.draw:
            print(curve.draw())
    return 0 if are_met else UNMET


if __name__ == "__main__":
    sys.exit(main())
