"""
How soon a client of one worker receives what a tool sends at another, and what waiting costs.

    python -m tools benchmark wakeups [--short] [--only sqlite,postgres] [--layers none,redis]

Two workers of uvicorn share a database and, with the layer `redis`, a Redis. A tool at the first
worker sends progress now and then; its client reads at the second. Each worker has 10 idle streams,
and then 500: its share of a core and its queries per second are taken while nothing is sent, and
the delays are measured with both numbers. Exits with 3 if a figure is not met.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field

from benchmarks.contenders import BY_NAME
from benchmarks.messages import JSON, WrongResponse, open_session
from benchmarks.servers import RunningServer, pinned, stop
from benchmarks.stream_reader import Reader
from benchmarks.streams import open_streams, raise_limit
from tools.benchmark import UNMET
from tools.database_servers import postgres, program, wait_for
from tools.ports import free_port

FEW, MANY = 10, 500  # idle streams at each worker
DATABASES = {"sqlite": nullcontext, "postgres": postgres}
# At most: milliseconds for half of all messages, and for 19 of 20.
PROMPT = {"none": (150.0, 300.0), "redis": (20.0, float("inf"))}
MOST_CPU = 2.0  # per cent of a core, of each worker that is idle
MOST_MORE = 1.2  # times the queries of few streams, for many
SETTLED = 5.0  # seconds until streams and channel layer are idle
IDS = itertools.count(1)


@dataclass
class Idle:
    """A worker while nothing is sent."""

    cpu: float  # per cent of a core
    queries: float  # a second


@dataclass
class Result:
    """A database and a channel layer, and what was measured with few streams and with many."""

    database: str
    layer: str
    delays: dict[int, list[float]] = field(default_factory=dict)  # milliseconds, by streams
    idle: dict[int, list[Idle]] = field(default_factory=dict)

    def figures(self) -> Iterator[tuple[bool, str]]:
        half, most = PROMPT[self.layer]
        for streams, took in self.delays.items():
            median, late = statistics.median(took), sorted(took)[int(len(took) * 0.95)]
            figures = f"median {median:.1f} ms (less than {half:g}), p95 {late:.1f} ms"
            figures += f" (less than {most:g})" if most < float("inf") else ""
            yield (
                median < half and late < most,
                f"{figures}, {len(took)} messages, {streams} open",
            )
        for streams, workers in self.idle.items():
            cpu = max(one.cpu for one in workers)
            shares = ", ".join(f"{one.cpu:.2f} %" for one in workers)
            yield cpu < MOST_CPU, f"idle with {streams} streams: {shares} (less than {MOST_CPU:g})"
        few, many = ([one.queries for one in self.idle[n]] for n in (FEW, MANY))
        rates = ", ".join(f"{a:.1f} and {b:.1f}" for a, b in zip(few, many, strict=True))
        yield sum(many) <= MOST_MORE * sum(few), f"queries a second with {FEW} and {MANY}: {rates}"

    def __str__(self) -> str:
        lines = [f"{self.database}, layer: {self.layer}"]
        lines += [f"  {'met' if is_met else 'UNMET'}: {text}" for is_met, text in self.figures()]
        return "\n".join(lines)


def measure(database: str, layer: str, messages: int, seconds: float) -> Result:
    result, streams = Result(database, layer), []
    with workers(database, layer) as (first, second), pinned():
        headers = open_session(first.address)
        for number in (FEW, MANY):
            for one in (first, second):
                streams += open_streams(one, "", number - len(result.idle) * FEW)
            time.sleep(SETTLED)
            result.idle[number] = idling([first, second], seconds)
            result.delays[number] = delays(first, second, headers, messages)
    for stream in streams:
        stream.close()
    print(result, flush=True)
    return result


def idling(started: list[RunningServer], seconds: float) -> list[Idle]:
    def now() -> list[tuple[float, int, float]]:
        return [(one.cpu(), queries(one), time.monotonic()) for one in started]

    before = now()
    time.sleep(seconds)
    return [
        Idle((cpu - was) / (at - then) * 100, (count - had) / (at - then))
        for (was, had, then), (cpu, count, at) in zip(before, now(), strict=True)
    ]


def delays(
    first: RunningServer, second: RunningServer, headers: JSON, messages: int
) -> list[float]:
    """Return the milliseconds from sending at the first to reading at the second."""
    arguments = {"name": "tick", "arguments": {"count": messages}}
    params = arguments | {"_meta": {"progressToken": "tick"}}
    call = {"jsonrpc": "2.0", "id": next(IDS), "method": "tools/call", "params": params}
    calling = Reader(first.address, headers, call)
    cursor = next(iter(calling)).id
    calling.close()
    received = list(Reader(second.address, headers | {"Last-Event-ID": cursor}))
    sent = [json.loads(one.data).get("params", {}).get("message") for one in received]
    if len(received) != messages or sent.pop() is not None:
        raise WrongResponse(f"{len(received)} of {messages} messages: {received[-1:]}")
    return [(one.at - float(at)) * 1000 for one, at in zip(received, sent, strict=False)][1:]


def queries(started: RunningServer) -> int:
    connection = http.client.HTTPConnection(*started.address, timeout=60)
    connection.request("GET", "/queries")
    found = int(connection.getresponse().read())
    connection.close()
    return found


@contextmanager
def workers(database: str, layer: str) -> Iterator[tuple[RunningServer, RunningServer]]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-"))
        environ = dict(stack.enter_context(DATABASES[database]()) or {})
        environ |= stack.enter_context(LAYERS[layer](folder))
        environ |= {"BENCHMARK_DATABASE": database, "BENCHMARK_COUNT": "1"}
        environ |= {"BENCHMARK_FOLDER": folder}
        first, second = (
            stack.enter_context(BY_NAME["django_mcp"].running(**environ)) for _ in range(2)
        )
        yield first, second


@contextmanager
def redis(folder: str) -> Iterator[dict[str, str]]:
    """Start a Redis, and yield the variable that names it."""
    port = free_port()
    kept = ["--save", "", "--appendonly", "no", "--dir", folder, "--bind", "127.0.0.1"]
    process = subprocess.Popen(
        [program("redis-server", "redis-server"), "--port", str(port), *kept],
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_for(port, process)
        yield {"BENCHMARK_REDIS": f"redis://127.0.0.1:{port}"}
    finally:
        stop(process)


def none(folder: str) -> nullcontext[dict[str, str]]:
    return nullcontext({})


LAYERS = {"none": none, "redis": redis}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--short", action="store_true", help="fewer messages, a shorter idle time")
    parser.add_argument("--only", default=",".join(DATABASES), help="sqlite, postgres, or both")
    parser.add_argument("--layers", default=",".join(LAYERS), help="none, redis, or both")
    options = parser.parse_args()
    messages, seconds = (60, 8.0) if options.short else (200, 20.0)
    raise_limit(4 * MANY)
    found = [
        measure(database, layer, messages, seconds)
        for database in options.only.split(",")
        for layer in options.layers.split(",")
    ]
    met = (is_met for result in found for is_met, _ in result.figures())
    return 0 if all(met) else UNMET


if __name__ == "__main__":
    sys.exit(main())
