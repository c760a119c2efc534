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


def lanes() -> Iterator[dict[str, Command]]:
    """What runs side by side, and in each the steps one after another: name, and command.

    Nothing is installed where another lane works.
    """
    requirements = {}
    if spec := os.environ.get("MCP_SPEC"):
        requirements["requirements"] = ("make", "requirements", f"ARGS=compare {spec}")
    yield {"lint": ("make", "lint"), "types": ("make", "types"), "docs": ("make", "docs"),
           **requirements, "pythons": tool("matrix", "--prepare")}  # fmt: skip
    yield {"demo": ("make", "demo", "ARGS=--check"), "readme": tool("newcomer", "readme"),
           "tutorial": tool("newcomer", "tutorial"), "clients": tool("clients")}  # fmt: skip


def alone() -> dict[str, Command]:
    """The steps that have the machine to themselves: name, and command of the README."""
    return {
        "matrix": tool("matrix"),
        "benchmark": ("make", "benchmark", "ARGS=--short"),
        "faults": ("make", "faults", "SECONDS=60", "DATABASE=postgres"),
        "test-all": ("make", "test-all"),
    }


def main(arguments: list[str]) -> int:
    os.environ |= {"CI": "true", "PYTHON": sys.executable}
    # Every one of hundreds of processes would compile all tests, and all there is to test.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    outcomes = [shown("install", tool("install")), *side_by_side(list(lanes()))]
    with ExitStack() as running:
        for label, command in alone().items():
            if label == "test-all":
                provide_servers(running)
            outcomes.append(shown(label, command))
    print("\n".join(["", *map(str, outcomes), *closing()]), flush=True)
    return int(any(outcome.code for outcome in outcomes))


def side_by_side(lanes: list[dict[str, Command]]) -> Iterator[Outcome]:
    with ThreadPoolExecutor(len(lanes)) as pool:
        for outcomes in pool.map(in_turn, lanes):
            yield from outcomes


def in_turn(steps: dict[str, Command]) -> list[Outcome]:
    """Each step when the one before is over, and what it printed in one piece."""
    return [kept(label, command) for label, command in steps.items()]


def provide_servers(running: ExitStack) -> None:
    """Name to the tests databases of this run alone, on servers that answer or of our own."""
    name = f"django_mcp_{os.getpid()}"
    os.environ |= {"PGDATABASE": name, "MARIADB_DATABASE": name}
    for server, start in OWN.items():
        if run(sys.executable, "-m", "tools", "databases", server):
            print(f"Starting a server of our own: {server}", flush=True)
            os.environ |= running.enter_context(start())


def shown(label: str, command: Command) -> Outcome:
    print(heading(label, command), flush=True)
    return outcome(label, command)


def kept(label: str, command: Command) -> Outcome:
    with tempfile.TemporaryFile() as printed:
        found = outcome(label, command, printed)
        printed.seek(0)
        text = printed.read().decode("utf-8", "replace")
    print(f"{heading(label, command)}\n{text}{found}", flush=True)
    return found


def heading(label: str, command: Command) -> str:
    return f"\n##### {label}: {' '.join(command[-2:])}"


def outcome(label: str, command: Command, printed: IO[bytes] | None = None) -> Outcome:
    began = time.monotonic()
    code = run(*command, into=printed)
    return Outcome(label, code, time.monotonic() - began)


def closing() -> list[str]:
    """The counts of the tests, once more at the very end."""
    if not REPORT.exists():
        return []
    suites = json.loads(REPORT.read_text())
    counts = (f"{sum(suite[what] for suite in suites)} {what}" for what in COUNTED)
    return [", ".join(counts)]


COUNTED = ("passed", "failed", "skipped")
