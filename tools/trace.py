"""`python -m tools trace [--modules PATH] [--calls PATH] [--json]`: count the code of a request.

For each path it prints the modules and functions of `django_mcp` that run, the Python calls, the
switches (calls from a function of one module into a function of another), the thread hops (jobs
that run in a thread of a pool) and the SQL statements. In brackets are the goals.

- Calls of other packages are not counted, and neither are comprehensions, generator expressions
  and resumed coroutines. The caller is the nearest `django_mcp` function on the stack.
- Statements that only begin or end a transaction are not counted.
- The project is that of `benchmarks/`, on SQLite. Tools are synchronous and `read_only`.
- Every path runs 5 times to warm up and then 25 times. Each function counts with the median of its
  calls, so a poller that runs now and then adds nothing.
  Between runs on a busy machine calls differed by about one per cent, and by four in `progress`
  and `token`, because threads run in another order.
- The goals are those of calls that go through fewer objects; the SDK's figures are of `mcp` and
  `mcp_types`, with a token verifier that looks nothing up.
"""

import argparse
import asyncio
import dis
import gc
import inspect
import json
import os
import re
import statistics
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import thread
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tools.benchmark import UNMET

WARMUPS, RUNS = 5, 25
QUIET_SECONDS = 0.01  # a path has ended when nothing more runs for this long
TITLES = {
    "modules": "modules",
    "functions": "functions",
    "calls": "Python calls",
    "switches": "switches",
    "hops": "thread hops",
    "queries": "queries",
}
NAMES = {
    "stateless": "`tools/call` with a token, 2026-07-28",
    "session": "`tools/call` with a token in a session, 2025-11-25",
    "progress": "the same, with one `request.progress()`",
    "read": "`resources/read` of a row, 2026-07-28",
    "token": "OAuth token request, `refresh_token`",
    "sdk": "`tools/call` with a token, 2026-07-28, by the `mcp` SDK",
}
# Modules, functions, calls and switches.
GOALS = {
    "stateless": (25, 100, 150, 80),
    "session": (32, 140, 210, 120),
    "progress": (45, 220, 450, 230),
}
EXPRESSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
RESUMABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
TRANSACTIONS = ("BEGIN", "SAVEPOINT", "RELEASE SAVEPOINT", "ROLLBACK")


class Call(NamedTuple):
    """A function that was called, and the module of the counted function that called it."""

    module: str
    code: CodeType
    caller: str | None


class Hop(NamedTuple):
    thread_pool: str


class Query(NamedTuple):
    sql: str


class Recorder:
    """Record what runs in any thread. Create it before threads are started."""

    def __init__(self) -> None:
        self.packages: tuple[str, ...] = ("django_mcp",)
        # Of the last run. Threads append to them, which is atomic.
        self.events: list[Call | Hop | Query] = []
        self.lines: list[str] = []  # the events as text, each function below its caller
        self.is_recording = False
        self.job_starts = {thread._WorkItem.run.__code__}
        threading.setprofile(self.profile)

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or not self.is_recording:
            return
        if frame.f_code in self.job_starts and is_start(frame):
            pool = re.sub(r"\d+", "", threading.current_thread().name)
            self.events.append(Hop(pool))
            self.lines.append(f"thread hop: {pool}")
        module = self.counted(frame)
        if module and frame.f_code.co_name not in EXPRESSIONS and is_start(frame):
            callers = [found for one in stack(frame.f_back) if (found := self.counted(one))]
            self.events.append(Call(module, frame.f_code, callers[0] if callers else None))
            self.lines.append(f"{'  ' * len(callers)}{module}.{frame.f_code.co_qualname}")

    def counted(self, frame: FrameType) -> str | None:
        """Return the frame's module if it is of the packages."""
        module = str(frame.f_globals.get("__name__"))
        return module if module.partition(".")[0] in self.packages else None

    def count_query(self, execute: Any, sql: str, *arguments: Any) -> Any:
        if self.is_recording and not sql.startswith(TRANSACTIONS):
            self.events.append(Query(sql))
            self.lines.append(f"query: {sql:.100}")
        return execute(sql, *arguments)

    def watch(self, connection: Any, **details: Any) -> None:
        if self.count_query not in connection.execute_wrappers:
            connection.execute_wrappers.append(self.count_query)

    async def measure(self, path: Callable[[], Awaitable[None]]) -> dict[Any, int]:
        """Return how often each event happens in a median run, in the order of the first run."""
        runs = [await self.record(path) for _ in range(WARMUPS + RUNS)][WARMUPS:]
        union = dict.fromkeys(event for run in runs for event in run)
        medians = {event: statistics.median_low([run[event] for run in runs]) for event in union}
        return {event: count for event, count in medians.items() if count}

    async def record(self, path: Callable[[], Awaitable[None]]) -> Counter[Any]:
        self.events, self.lines, seen = [], [], -1
        self.is_recording = True
        sys.setprofile(self.profile)
        try:
            await path()
            while len(self.events) != seen:  # what is still done after the response
                seen = len(self.events)
                await asyncio.sleep(QUIET_SECONDS)
        finally:
            sys.setprofile(None)
            self.is_recording = False
        return Counter(self.events)


def is_start(frame: FrameType) -> bool:
    """Whether a function starts here. A generator or coroutine may also be resumed."""
    if not frame.f_code.co_flags & RESUMABLE:
        return True
    operation, argument = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
    return operation == dis.opmap["RESUME"] and argument & 3 == 0


def stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


class Trace(NamedTuple):
    """What a path runs in a median run, and as lines in the last run."""

    counts: dict[Any, int]
    lines: list[str]

    def calls(self) -> dict[Call, int]:
        return {event: n for event, n in self.counts.items() if isinstance(event, Call)}

    def modules(self) -> dict[str, int]:
        """Return the calls of each module's functions, in the order in which modules begin."""
        found: Counter[str] = Counter()
        for call, number in self.calls().items():
            found[call.module] += number
        return dict(found)

    def figures(self) -> dict[str, int]:
        calls = self.calls()
        return {
            "modules": len(self.modules()),
            "functions": len({call.code for call in calls}),
            "calls": sum(calls.values()),
            "switches": sum(
                n for call, n in calls.items() if call.caller not in (None, call.module)
            ),
            "hops": sum(n for event, n in self.counts.items() if isinstance(event, Hop)),
            "queries": sum(n for event, n in self.counts.items() if isinstance(event, Query)),
        }


def trace(wanted: str | None = None) -> dict[str, Trace]:
    """Return the trace of each path, or of the one that is wanted."""
    recorder = Recorder()
    gc.disable()  # finalizers run at any time
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BENCHMARK_FOLDER"] = folder
        from django.db.backends.signals import connection_created

        from benchmarks import paths

        client = paths.make_client()
        connection_created.connect(recorder.watch)
        return asyncio.run(trace_paths(recorder, client, wanted))


async def trace_paths(recorder: Recorder, client: Any, wanted: str | None) -> dict[str, Trace]:
    found = {}
    for name, path in client.paths().items():
        if wanted in (None, name):
            found[name] = Trace(await recorder.measure(path), recorder.lines)
    if wanted in (None, "sdk"):
        with suppress(ImportError):
            found["sdk"] = Trace(await trace_sdk(recorder), recorder.lines)
    return found


async def trace_sdk(recorder: Recorder) -> dict[Any, int]:
    import anyio.to_thread

    from benchmarks import paths

    server = paths.make_sdk_server()
    client = paths.Client(server.streamable_http_app())
    recorder.packages = ("mcp", "mcp_types")
    recorder.job_starts.add(anyio.to_thread.run_sync.__code__)
    async with server.session_manager.run():
        return await recorder.measure(client.paths()["stateless"])


def table(traces: dict[str, Trace]) -> str:
    """Return the figures as a table of Markdown, with the goals in brackets."""
    rows = [("", *TITLES.values())]
    for name, one in traces.items():
        goals = dict(zip(TITLES, GOALS.get(name, ()), strict=False))
        cells = (
            f"{n:,} ({goals[key]})" if key in goals else str(n) for key, n in one.figures().items()
        )
        rows.append((NAMES[name], *cells))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(widths))
    return "\n".join(lines)


def are_goals_met(traces: dict[str, Trace]) -> bool:
    return all(
        number <= goal
        for name, one in traces.items()
        for number, goal in zip(one.figures().values(), GOALS.get(name, ()), strict=False)
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "python -m tools trace", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--modules", choices=NAMES, metavar="PATH", help=", ".join(NAMES))
    parser.add_argument("--calls", choices=NAMES, metavar="PATH", help="list the calls in order")
    parser.add_argument("--json", action="store_true", help="print data")
    parser.add_argument(
        "--judge", action="store_true", help=f"exit with {UNMET} if a goal is unmet"
    )
    options = parser.parse_args(arguments)
    traces = trace(options.modules or options.calls)
    if options.json:
        data = {name: one.figures() | {"by_module": one.modules()} for name, one in traces.items()}
        print(json.dumps(data, indent=2))
    else:
        print(table(traces))
    if options.modules and not options.json:
        print("\nModules in the order in which they begin, and their calls:")
        for module, calls in traces[options.modules].modules().items():
            print(f"{calls:>6}  {module}")
    if options.calls and not options.json:
        print("\nCalls of the last run, which may include a poller or a timer:")
        print("\n".join(traces[options.calls].lines))
    return UNMET if options.judge and not are_goals_met(traces) else 0


if __name__ == "__main__":
    sys.exit(main([*sys.argv[1:], "--judge"]))
