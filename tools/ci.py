"""`python -m tools ci`: run all checks on a clean clone.

All steps run, even after a failure. Steps that measure time run alone; the others run in parallel,
and their output is printed when they end. Tests run last, so that their summary ends the output.
Database servers are started if none is reachable, and no test suite may be skipped. `MCP_SPEC`
names a checkout of the specification.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import IO, NamedTuple

from tools import ROOT
from tools.database_servers import OWN
from tools.processes import run

REPORT = ROOT / "build" / "tests.json"


class Outcome(NamedTuple):
    """The result of a step."""

    label: str
    code: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.label:<16} {self.seconds:6.1f} s  {'FAILED' if self.code else 'ok'}"


Command = tuple[str, ...]


def tool(*arguments: str) -> Command:
    return (sys.executable, "-m", "tools", *arguments)


def parallel_steps() -> Iterator[dict[str, Command]]:
    """Yield groups of steps that run in parallel, as commands by name.

    The steps of a group run one after another. No step installs packages into an environment that
    a step of another group uses.
    """
    requirements = {}
    if spec := os.environ.get("MCP_SPEC"):
        requirements["requirements"] = ("make", "requirements", f"ARGS=compare {spec}")
    yield {"lint": ("make", "lint"), "types": ("make", "types"), "docs": ("make", "docs"),
           **requirements, "pythons": tool("matrix", "--prepare"),
           "peers": tool("benchmark", "--prepare")}  # fmt: skip
    yield {"demo": ("make", "demo", "ARGS=--check"), "readme": tool("newcomer", "readme"),
           "tutorial": tool("newcomer", "tutorial"), "clients": tool("clients")}  # fmt: skip


def exclusive_steps() -> dict[str, Command]:
    """Return the steps that run alone, because they measure time: commands by name."""
    return {
        "matrix": tool("matrix"),
        "benchmark": ("make", "benchmark", "ARGS=--short"),
        "faults": ("make", "faults", "SECONDS=60", "DATABASE=postgres"),
        "test-all": ("make", "test-all"),
    }


def main(arguments: list[str]) -> int:
    os.environ |= {"CI": "true", "PYTHON": sys.executable}
    # With this variable, each of hundreds of processes would compile all modules again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    outcomes = [run_printing("install", tool("install")), *run_in_parallel(list(parallel_steps()))]
    with ExitStack() as running:
        for label, command in exclusive_steps().items():
            if label == "test-all":
                start_database_servers(running)
            outcomes.append(run_printing(label, command))
    print("\n".join(["", *map(str, outcomes), *suite_totals()]), flush=True)
    return int(any(outcome.code for outcome in outcomes))


def run_in_parallel(groups: list[dict[str, Command]]) -> Iterator[Outcome]:
    with ThreadPoolExecutor(len(groups)) as pool:
        for outcomes in pool.map(run_sequentially, groups):
            yield from outcomes


def run_sequentially(steps: dict[str, Command]) -> list[Outcome]:
    """Run the steps of a group one after another. Print the output of each when it ends."""
    return [run_capturing(label, command) for label, command in steps.items()]


def start_database_servers(running: ExitStack) -> None:
    """Start the database servers that are not reachable. Set database names of this run."""
    name = f"django_mcp_{os.getpid()}"
    os.environ |= {"PGDATABASE": name, "MARIADB_DATABASE": name}
    for server, start in OWN.items():
        if run(sys.executable, "-m", "tools", "databases", server):
            print(f"Starting a server of our own: {server}", flush=True)
            os.environ |= running.enter_context(start())


def run_printing(label: str, command: Command) -> Outcome:
    print(heading(label, command), flush=True)
    return run_step(label, command)


def run_capturing(label: str, command: Command) -> Outcome:
    with tempfile.TemporaryFile() as printed:
        found = run_step(label, command, printed)
        printed.seek(0)
        text = printed.read().decode("utf-8", "replace")
    print(f"{heading(label, command)}\n{text}{found}", flush=True)
    return found


def heading(label: str, command: Command) -> str:
    return f"\n##### {label}: {' '.join(command[-2:])}"


def run_step(label: str, command: Command, printed: IO[bytes] | None = None) -> Outcome:
    began = time.monotonic()
    code = run(*command, into=printed)
    return Outcome(label, code, time.monotonic() - began)


def suite_totals() -> list[str]:
    """Return the total counts of all test suites, for the last line of the output."""
    if not REPORT.exists():
        return []
    suites = json.loads(REPORT.read_text())
    counts = (f"{sum(suite[what] for suite in suites)} {what}" for what in COUNTS)
    return [", ".join(counts)]


COUNTS = ("passed", "failed", "skipped")
