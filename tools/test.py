"""`python -m tools test [PYTEST ARGUMENTS]`: the quick tests, on SQLite.

This is what a contributor runs: each behaviour once, at the lowest level that shows it. Tests that
start servers, browsers or other programs, and the other databases, belong to `test-all`.
"""

import os

from tools.processes import module

# One process per core. A module stays in one process, so its fixtures are built once.
PARALLEL = ("-n", str(os.cpu_count() or 1), "--dist", "loadfile")

LEFT_OUT = """
Not run: tests that start servers, browsers or other programs (browser, clients, conformance,
documentation, example project, faults, hosts, restarts), PostgreSQL and MariaDB.
`make test-all` runs them."""

# Python would compile every module again in each process, if it may not keep the bytecode.
ENVIRON = {"PYTHONDONTWRITEBYTECODE": None, "DJANGO_SETTINGS_MODULE": None}


def main(arguments: list[str]) -> int:
    code = module("pytest", *PARALLEL, *arguments, TEST_DATABASE="sqlite", **ENVIRON)
    print(LEFT_OUT, flush=True)
    return code
