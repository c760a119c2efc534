"""
What a second worker costs: the same calls by one worker, and by two that share a database.

    python -m tools benchmark workers [--short] [--rounds 5]

The database is a PostgreSQL server of its own. Each client has one session and calls the workers in
turn. The calls come at the same rate in both cases. The figure is the processor time of the workers
for 1,000 calls: with plain JSON responses, and with streams that are stored. Two processes cost a
machine more than one in any case, so the report also shows two workers with a database each. It
shows how often a statement waited for a lock, by a query every 20 ms and by the log of the server.
Exits with 1 if a response is wrong, and with 3 if a figure is not met.
"""

from __future__ import annotations

import argparse
import itertools
import math
import select
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.contenders import BY_NAME
from benchmarks.load import PATIENCE, Connection
from benchmarks.messages import (
    JSON,
    NUMBER,
    SESSION,
    CallTemplate,
    WrongResponse,
    open_session,
    template,
)
from benchmarks.servers import RunningServer, pinned
from tools.benchmark import UNMET
from tools.database_servers import postgres

CLIENTS = 16
MOST = 1.15  # times the processor's time of one worker
LOCK_POLL_SECONDS = 0.02
OTHER = "another"  # the database of a worker that shares nothing
LONG = "10ms"  # the server logs longer waits
NUMBERS = itertools.count(1)
Pair = tuple[RunningServer, RunningServer]
WAITING = """
    SELECT wait_event, regexp_replace(query, '[0-9]+', '0', 'g') FROM pg_stat_activity
    WHERE wait_event_type = 'Lock'
"""
LOCK_LOGGING = ("log_lock_waits = on", f"deadlock_timeout = '{LONG}'", "log_min_messages = log")


@dataclass
class Load:
    """A kind of call, and what each round of it cost."""

    tool: str
    about: str
    calls: int
    rate: float  # a second
    # Milliseconds of the processor for a call: of one worker, of two, of two that share nothing.
    one: list[float] = field(default_factory=list)
    two: list[float] = field(default_factory=list)
    apart: list[float] = field(default_factory=list)

    def measure(self, first: RunningServer, second: RunningServer, other: RunningServer) -> None:
        self.one.append(self.spent([(first, first)]))
        self.two.append(self.spent([(first, second)]))
        self.apart.append(self.spent([(first, first), (other, other)]))

    def spent(self, pairs: Sequence[Pair]) -> float:
        """Return the milliseconds of processor time per call, by clients of these pairs."""
        workers = {worker.process.pid: worker for pair in pairs for worker in pair}.values()
        clients = [Client(pairs[n % len(pairs)], self.tool) for n in range(CLIENTS)]
        make(clients, CLIENTS * 4)
        before = sum(worker.cpu() for worker in workers)
        make(clients, self.calls, self.rate)
        spent = sum(worker.cpu() for worker in workers) - before
        for client in clients:
            client.close()
        return spent / self.calls * 1000

    @property
    def times(self) -> list[float]:
        return [two / one for one, two in zip(self.one, self.two, strict=True)]

    @property
    def is_met(self) -> bool:
        return statistics.median(self.times) <= MOST

    def __str__(self) -> str:
        one, two, apart = map(statistics.median, (self.one, self.two, self.apart))
        verdict = "met" if self.is_met else "UNMET"
        rounds = ", ".join(f"{one:.2f}" for one in self.times)
        return (
            f"{verdict}: {self.about}: {one:.3f} s of one worker's processor for 1,000 calls,"
            f" {two:.3f} s of two, {apart:.3f} s of two that share nothing:"
            f" {statistics.median(self.times):.2f} times (at most {MOST:g}; {rounds})"
        )


class Client:
    """A session, with a connection to each worker."""

    def __init__(self, workers: Pair, tool: str) -> None:
        headers = {"MCP-Protocol-Version": SESSION, **open_session(workers[0].address)}
        addresses = [worker.address for worker in workers]
        self.begin([Connection(one, call_of(one, headers, tool)) for one in addresses])

    def begin(self, connections: Sequence[Connection]) -> None:
        self.connections, self._turns = connections, itertools.cycle(connections)
        self.current = connections[0]

    def call(self) -> None:
        self.current = next(self._turns)
        self.current.call(next(NUMBERS))

    def close(self) -> None:
        for connection in self.connections:
            connection.socket.close()


def call_of(address: tuple[str, int], headers: JSON, tool: str) -> CallTemplate:
    arguments, meta = {"a": NUMBER, "b": 1}, {"progressToken": "progress"}
    return template(address, headers, {"name": tool, "arguments": arguments, "_meta": meta})


def make(clients: Sequence[Client], calls: int, rate: float = math.inf) -> None:
    """Make this many calls at that rate. A client waits for its response before the next."""
    whose = {c.socket.fileno(): client for client in clients for c in client.connections}
    poll = select.poll()
    for number in whose:
        poll.register(number, select.POLLIN)
    free, begun, start = deque(clients), 0, time.monotonic()
    while begun < calls or len(free) < len(clients):
        early = start + begun / rate - time.monotonic()
        may_call = bool(free) and begun < calls
        if may_call and early <= 0:
            begun += 1
            free[0].call()
            free.popleft()
            continue
        ready = poll.poll((early if may_call else PATIENCE) * 1000)
        if not ready and not may_call:
            raise WrongResponse(f"No response within {PATIENCE} seconds")
        free += (whose[n] for n, _ in ready if whose[n].current.answered() is not None)


# Locks.


class LockPoller(threading.Thread):
    """A thread that polls which statements wait for a lock."""

    def __init__(self, address: JSON) -> None:
        super().__init__(daemon=True)
        self._connection = connected(address)
        self._over = threading.Event()
        self.polls = 0
        self.found: Counter[tuple[str, str]] = Counter()

    def run(self) -> None:
        while not self._over.wait(LOCK_POLL_SECONDS):
            self.found.update(self._connection.execute(WAITING).fetchall())
            self.polls += 1

    def end(self) -> None:
        self._over.set()
        self.join()
        self._connection.close()


def connected(environ: JSON) -> Any:
    import psycopg

    return psycopg.connect(
        host=environ["PGHOST"], port=environ["PGPORT"], user=environ["PGUSER"], dbname="postgres",
        autocommit=True,
    )  # fmt: skip


@contextmanager
def watched(environ: JSON) -> Iterator[tuple[LockPoller, Path]]:
    """Poll for locks and have the server log them. Yield the poller and the path of the log."""
    with connected(environ) as connection:
        for line in LOCK_LOGGING:
            connection.execute(f"ALTER SYSTEM SET {line}")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute(f"CREATE DATABASE {OTHER}")
        data = connection.execute("SHOW data_directory").fetchone()[0]
    poller = LockPoller(environ)
    poller.start()
    try:
        yield poller, Path(data).parent / "log"
    finally:
        poller.end()


def report_locks(poller: LockPoller, log: Path) -> bool:
    noted = [line for line in log.read_text(errors="replace").splitlines() if "waiting for" in line]
    verdict = "UNMET" if poller.found or noted else "met"
    print(
        f"{verdict}: {sum(poller.found.values())} waits for a lock in {poller.polls} polls, and"
        f" {len(noted)} of more than {LONG} in the server's log (none)"
    )
    for (event, query), times in poller.found.most_common(5):
        print(f"  {times} x {event}: {query[:200]}")
    print("".join(f"  {line}\n" for line in noted[:5]), end="")
    return verdict == "met"


def measure(loads: Sequence[Load], rounds: int) -> bool:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-"))
        environ = stack.enter_context(postgres())
        poller, log = stack.enter_context(watched(environ))
        given = environ | {"BENCHMARK_DATABASE": "postgres", "BENCHMARK_FOLDER": folder}
        workers = [
            stack.enter_context(BY_NAME["django_mcp"].running(**given, PGDATABASE=database))
            for database in ("postgres", "postgres", OTHER)
        ]
        stack.enter_context(pinned())
        for load, _ in itertools.product(loads, range(rounds)):
            load.measure(*workers)
        time.sleep(LOCK_POLL_SECONDS)
        return report_locks(poller, log)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--short", action="store_true", help="few calls, in one round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    share, rounds = (0.5, 1) if options.short else (1, options.rounds)
    loads = [
        Load("add", "plain JSON responses", int(1_600 * share), rate=400),
        Load("add_with_progress", "durable calls with progress", int(160 * share), rate=40),
    ]
    are_met = [measure(loads, rounds)]
    for load in loads:
        print(load)
        are_met.append(load.is_met)
    return 0 if all(are_met) else UNMET


if __name__ == "__main__":
    sys.exit(main())
