"""
Where the time of a call went before an optimization and where it goes now, by a sampling profiler.

    python -m tools benchmark samples [--short] [--before COMMIT] [--server fast] [--rounds 5]

The present code and that of an earlier commit, with its own `benchmarks/`, are served by one
process each and take turns. A tool that reads a row is called with a token, without and in a
session. py-spy samples the thread that holds the GIL, and each sample counts for one phase: that of
its innermost frame that `PHASES` knows. The figures are the shares of the samples, multiplied by
the processor time of a call, which is measured without the profiler in the same round.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.contenders import BY_NAME, OAUTH, SERVERS, UVICORN
from benchmarks.environments import interpreter
from benchmarks.load import Connection, load, make_calls
from benchmarks.messages import SESSION_TOKEN, TEMPLATES, TOKEN
from benchmarks.servers import RunningServer, pinned, running
from tools import ROOT
from tools.ports import free_port

BEFORE = "544c7f40"  # the last commit before the work on performance
PROFILER = ("py-spy==0.4.*",)
RATE = 250  # samples per second
CONNECTIONS = 16
IDS = itertools.count(1_000_000_000)
REST = "the rest of django_mcp"
# By phase, the frames of both commits, as "function (file:". The first phase that fits is taken,
# so the function and the names of single functions come before whole files.
HTTP, OURS = r"\(django_mcp/transports/http/", r"\(django_mcp/"
PHASES = {
    "function": r"city \(benchmarks/",
    "look-up": rf"{HTTP}lookups|{OURS}(oauth/verifier|storage/compiled_queries|auth/last_used)"
    rf"|{OURS}(verifiers/|tokens\.|uses\.|oauth/(held|known|marks|people|rows|targets))"
    rf"|{OURS}(storage|delivery)/sessions|{OURS}models[/.]",
    "authenticate": rf"{HTTP}(authentication|callers)\.|{OURS}(auth/)?principal",
    "parse": rf"(decode|_bound\w*|_refuse\w*) {OURS}protocol|(body|read_\w+|_read\w*|__init__) "
    rf"{HTTP}(request|exchanges|consumer)",
    "encode": rf"(encode|_dump|dumps) {OURS}protocol/|{OURS}(calls|dispatch)/results"
    rf"|{OURS}declar\w+/(outputs|contents?|returned_rows)",
    "send": rf"(send|text|json|_write|write) (\(uvicorn|{HTTP})",
    "security": rf"{HTTP}(security|guards|scopes|naming|challenges)|{OURS}(auth/)?scopes",
    "permission": rf"(check|admitted) {OURS}(calls|dispatch)"
    rf"|(_decide\w*|_missing_scopes|has_permission|allows\w*) {OURS}declar"
    rf"|{OURS}declar\w+/(permissions|effective)|{OURS}.*switches",
    "validation": rf"{OURS}declar\w+/(arguments|parameters|bindings|schemas|type_schemas)",
    "protocol": rf"{OURS}protocol/",
    "event loop, threads": rf"{OURS}(runtime/thread_pools|pools|threads)\."
    r"|\((asyncio|concurrent|threading|uvloop|selectors)",
    REST: OURS,
    "server": r"\((uvicorn|h11|httptools|channels)/",
}
KNOWN = {phase: re.compile(pattern) for phase, pattern in PHASES.items()}
OTHER = "other"


def phase_of(stack: str) -> str:
    """Return the phase of a stack, whose frames are separated by semicolons, the innermost last."""
    for frame in reversed(stack.split(";")):
        for phase, pattern in KNOWN.items():
            if pattern.search(frame):
                return phase
    return OTHER


@dataclass
class Samples:
    """The processor time of a call in microseconds, by phase and in all, of each round."""

    name: str
    variant: str
    phases: list[dict[str, float]] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)

    def round(self, started: RunningServer, calls: int, seconds: float) -> None:
        total = self.cost(started, calls)
        found = self.sampled(started, seconds)
        self.totals.append(total)
        self.phases.append({name: n / found.total() * total for name, n in found.items()})

    def cost(self, started: RunningServer, calls: int) -> float:
        made = TEMPLATES[self.variant](started.address, "city", {"pk": 7})
        opened = [Connection(started.address, made) for _ in range(CONNECTIONS)]
        make_calls(opened, IDS, CONNECTIONS)
        before = started.cpu()
        make_calls(opened, IDS, calls)
        spent = started.cpu() - before
        for connection in opened:
            connection.socket.close()
        return spent / calls * 1e6

    def sampled(self, started: RunningServer, seconds: float) -> Counter[str]:
        """Return how many samples each phase has while calls are made."""
        profiler = interpreter("py-spy", PROFILER).parent / "py-spy"
        with tempfile.NamedTemporaryFile() as output:
            process = subprocess.Popen(
                [
                    *(profiler, "record", "--gil", "--format", "raw", "--output", output.name),
                    *("--rate", str(RATE), "--duration", f"{seconds:.0f}"),
                    *("--pid", str(started.process.pid)),
                ],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                # On the core of the load it would mostly run when the load waits, and so sample
                # some phases too rarely.
                preexec_fn=lambda: os.sched_setaffinity(0, range(os.cpu_count() or 1)),
            )
            made = TEMPLATES[self.variant](started.address, "city", {"pk": 7})
            while process.poll() is None:
                load(started.address, made, 1.0, start=next(IDS) * 10_000)
            if process.returncode:
                _, problem = process.communicate()
                raise RuntimeError(f"py-spy failed: {problem.decode()}")
            found: Counter[str] = Counter()
            for line in Path(output.name).read_text().splitlines():
                stack, _, number = line.rpartition(" ")
                found[phase_of(stack)] += int(number)
        return found

    def median(self, phase: str) -> float:
        return statistics.median(found.get(phase, 0.0) for found in self.phases)


@contextmanager
def earlier(commit: str, server: str) -> Iterator[RunningServer]:
    """Serve the project of an earlier commit, in the environment of the present one."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        port = free_port()
        options = UVICORN.format(
            port=port, how=SERVERS[server], application="benchmarks.server:application"
        )
        # The folder comes before the current one, which has the present code.
        command = [str(BY_NAME["django_mcp"].python), *options.split(), "--app-dir", folder]
        with running(command, port, {**OAUTH, "PYTHONPATH": folder}, cwd=folder) as started:
            yield started


def measure(commit: str, server: str, rounds: int, calls: int, seconds: float) -> list[Samples]:
    samples = [
        Samples(name, variant) for variant in (TOKEN, SESSION_TOKEN) for name in ("before", "now")
    ]
    interpreter("py-spy", PROFILER)
    with ExitStack() as stack:
        servers = {
            "before": stack.enter_context(earlier(commit, server)),
            "now": stack.enter_context(BY_NAME["django_mcp"].running(server, **OAUTH)),
        }
        with pinned():
            for one in samples:
                one.cost(servers[one.name], calls)
            for _, one in itertools.product(range(rounds), samples):
                one.round(servers[one.name], calls, seconds)
    return samples


def report(samples: list[Samples]) -> None:
    print(f"| phase | {' | '.join(f'{one.variant}, {one.name}' for one in samples)} |")
    print("|---" * (len(samples) + 1) + "|")
    for phase in (*PHASES, OTHER):
        print(f"| {phase} | {' | '.join(f'{one.median(phase):.0f}' for one in samples)} |")
    totals = (statistics.median(one.totals) for one in samples)
    print(f"| in all | {' | '.join(f'{total:.0f}' for total in totals)} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--short", action="store_true", help="one round")
    parser.add_argument("--before", default=BEFORE, help="the earlier commit")
    parser.add_argument("--server", choices=SERVERS, default="plain", help="how uvicorn runs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=1_000, help="of a round, without the profiler")
    parser.add_argument("--seconds", type=float, default=8.0, help="of a round, with the profiler")
    given = parser.parse_args()
    rounds, calls, seconds = (
        (1, 200, 3.0) if given.short else (given.rounds, given.calls, given.seconds)
    )
    report(measure(given.before, given.server, rounds, calls, seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
