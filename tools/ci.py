"""`python -m tools ci`: everything that must hold, on a clean clone.

The rule: every step runs, whatever came of those before; the tests come last, so that their
closing lines are the last thing read. Where no database server answers, one of our own is
started, and no suite may be skipped. `MCP_SPEC` names a checkout of the specification.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

from tools.environment import ROOT
from tools.run import run
from tools.servers import OWN

REPORT = ROOT / "build" / "tests.json"


class Outcome(NamedTuple):
    """What came of a step."""

    label: str
    code: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.label:<16} {self.seconds:6.1f} s  {'FAILED' if self.code else 'ok'}"


def steps() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each step: its name, and the command of the README that does it."""
    yield "install", (sys.executable, "-m", "tools", "install")
    yield "clients", (sys.executable, "-m", "tools", "clients")
    yield "lint", ("make", "lint")
    yield "types", ("make", "types")
    if spec := os.environ.get("MCP_SPEC"):
        yield "requirements", ("make", "requirements", f"ARGS=compare {spec}")
    yield "demo", ("make", "demo", "ARGS=--check")
    yield "docs", ("make", "docs")
    yield "readme", (sys.executable, "-m", "tools", "newcomer", "readme")
    yield "tutorial", (sys.executable, "-m", "tools", "newcomer", "tutorial")
    yield "matrix", (sys.executable, "-m", "tools", "matrix")
    yield "benchmark", ("make", "benchmark", "ARGS=--short")
    yield "faults", ("make", "faults", "SECONDS=60", "DATABASE=postgres")
    yield "test", ("make", "test")


def main(arguments: list[str]) -> int:
    os.environ |= {"CI": "true", "PYTHON": sys.executable}
    outcomes = []
    with ExitStack() as running:
        for label, command in steps():
            if label == "test":
                provide_servers(running)
            outcomes.append(outcome(label, command))
    print("\n".join(["", *map(str, outcomes), *closing()]), flush=True)
    return int(any(outcome.code for outcome in outcomes))


def provide_servers(running: ExitStack) -> None:
    """Name to the tests databases of this run alone, on servers that answer or of our own."""
    name = f"django_mcp_{os.getpid()}"
    os.environ |= {"PGDATABASE": name, "MARIADB_DATABASE": name}
    for server, start in OWN.items():
        if run(sys.executable, "-m", "tools", "databases", server):
            print(f"Starting a server of our own: {server}", flush=True)
            os.environ |= running.enter_context(start())


def outcome(label: str, command: tuple[str, ...]) -> Outcome:
    print(f"\n##### {label}: {' '.join(command[-2:])}", flush=True)
    began = time.monotonic()
    return Outcome(label, run(*command), time.monotonic() - began)


def closing() -> list[str]:
    """The counts of the tests, once more at the very end."""
    if not REPORT.exists():
        return []
    suites = json.loads(REPORT.read_text())
    counts = (f"{sum(suite[what] for suite in suites)} {what}" for what in COUNTED)
    return [", ".join(counts)]


COUNTED = ("passed", "failed", "skipped")
