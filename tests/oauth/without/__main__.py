"""`python -m tests.oauth.without [T14 ...]`: each defence is taken away, and tests must fail.

    python -m tests.oauth.without [THREAT ...] [--database sqlite|postgres|mariadb]

First all tests of the threats must pass; then one defence after another is taken away in a copy of
the project, and each test that its row names must fail. A line for each; the exit code is 1 if any
went unnoticed. Servers are named by the environment, as for the other tests: see tests/settings.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from .copies import Copy, problem
from .rows import DATABASES, Removal, attacks
from .tables import REMOVALS

DATABASE = "TEST_DATABASE"


def main(arguments: list[str]) -> int:
    parsed = parser().parse_args(arguments)
    os.environ[DATABASE] = parsed.database
    wanted = set(parsed.threats) or {row.threat for row in REMOVALS}
    removals = [row for row in REMOVALS if row.threat in wanted and parsed.database in row.on]
    if not removals:
        print("There is no such threat.")
        return 2
    with tempfile.TemporaryDirectory(prefix="without_") as folder:
        return _tried(Copy(Path(folder)), removals, parsed.database)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.oauth.without", description=__doc__)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.add_argument("threats", nargs="*", metavar="THREAT", help="as T14; all if none is named")
    made.add_argument("--database", choices=DATABASES, default=os.environ.get(DATABASE, "sqlite"))
    return made


def _tried(copy: Copy, removals: list[Removal], database: str) -> int:
    if not _all_pass(copy, {row.threat for row in removals}):
        return 1
    unnoticed = sum(not _is_noticed(copy, row) for row in removals)
    threats = len({row.threat for row in removals})
    print(
        f"{len(removals)} removals for {threats} threats on {database}:"
        f" {len(removals) - unnoticed} noticed, {unnoticed} not"
    )
    return 1 if unnoticed else 0


def _all_pass(copy: Copy, threats: Iterable[str]) -> bool:
    tests = [name for name, (_, named) in attacks().items() if {*named} & {*threats}]
    failures = copy.failures(tests)
    for test, hows in failures.items():
        print(f"FAILS {test}, with nothing taken away: {min(hows).splitlines()[0]}")
    print(f"{len(tests)} tests, with nothing taken away: {len(failures)} fail", flush=True)
    return not failures


def _is_noticed(copy: Copy, removal: Removal) -> bool:
    with copy.without(removal):
        wrong = problem(removal, copy.failures(removal.tests))
    said = f"noticed by {', '.join(removal.tests)}" if wrong is None else f"UNNOTICED: {wrong}"
    print(f"{removal.threat} without: {removal.defence} - {said}", flush=True)
    return wrong is None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
