"""`python -m tools matrix [--prepare]`: a quick run of the tests on other Pythons and Djangos.

The rule: every interpreter that is found and is not this one, in an environment of its own, with
every Django that supports it; on SQLite, without what is slow or drives other programs. The newest
of both runs what is neither about words on a wire or a page nor about declarations and commands,
which the middle one runs, without what is mostly our own code; every other pair runs what of that
needs a database, without signing in: its Python and its Django are tried with others. One pair of
each Python tries the example. `--prepare` makes the environments, and runs nothing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tools.environment import ROOT
from tools.run import run
from tools.test import NOT_AGAIN

DJANGOS = {
    (3, 11): ("5.2",),
    (3, 12): ("5.2", "6.0", "6.1"),
    (3, 13): ("5.2", "6.0", "6.1"),
}
OTHER_PROGRAMS = ("tests/clients", "tests/hosts", "tests/restarts", "tests/spec/test_servers.py")
ABOUT_THE_PROJECT = ("tests/benchmarks", "tests/faults", "tests/requirements", "tests/tools")
OUR_OWN = ("tests/delivery", "tests/dispatch", "tests/security", "tests/transports")
QUICK = ("-q", "-n", "2", "-m", "not slow")


def without(*paths: str) -> tuple[str, ...]:
    return tuple(f"--ignore={path}" for path in paths)


QUICKLY = (*QUICK, *without(*OTHER_PROGRAMS, *ABOUT_THE_PROJECT))
ON_WIRES = ("tests/protocol", "tests/spec", "tests/testing", "tests/test_oracle.py")
ELSEWHERE = ("tests/declare", "tests/docs", "tests/management")
NEARLY_ALL = ("--only", "sqlite,example", *QUICKLY, *without(*ELSEWHERE, *ON_WIRES))
ABOUT_DJANGO = (*QUICKLY, *NOT_AGAIN, *without(*OUR_OWN))
WITH_EXAMPLE = ("--only", "sqlite,example", *ABOUT_DJANGO)
SIGNING_IN = ("tests/issuers", "tests/oauth")
WITHOUT_OAUTH = (*ABOUT_DJANGO, *without(*SIGNING_IN))
AGAIN = ("--only", "sqlite", *WITHOUT_OAUTH, "-m", "not slow and django_db")
PREPARE = "from tools import environment; environment.prepare(('test',))"
NEWEST, MIDDLE = ((3, 13), "6.1"), ((3, 12), "6.0")


class Interpreter(NamedTuple):
    """A Python that is there, and the environment that is made with it."""

    version: tuple[int, int]
    path: str

    @property
    def label(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def environment(self) -> str:
        return f".venv-{self.label}"

    @property
    def inside(self) -> str:
        return str(ROOT / self.environment / ("Scripts" if os.name == "nt" else "bin") / "python")


class Outcome(NamedTuple):
    """What came of one Python with one Django."""

    label: str
    code: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.label:<28} {self.seconds:6.1f} s  {'FAILED' if self.code else 'ok'}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools matrix", allow_abbrev=False)
    parser.add_argument("--prepare", action="store_true", help="make the environments only")
    options, for_pytest = parser.parse_known_args(arguments)
    if options.prepare:
        return max(map(prepare, others()), default=0)
    outcomes = [one for python in others() for one in runs(python, for_pytest)]
    print("\n".join(["", *map(str, outcomes)]) if outcomes else "No other Python was found.")
    return int(any(outcome.code for outcome in outcomes))


def others() -> Iterator[Interpreter]:
    for version in DJANGOS:
        path = find(version) if version != sys.version_info[:2] else None
        if path:
            yield Interpreter(version, path)


def find(version: tuple[int, int]) -> str | None:
    """An interpreter of this version, on the path or among those of pyenv."""
    name = "python{}.{}".format(*version)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    installed = sorted(pyenv.glob(f"versions/{name.removeprefix('python')}.*/bin/python"))
    candidates = [shutil.which(name), *map(str, reversed(installed))]
    return next((path for path in candidates if path and works(path, version)), None)


def works(path: str, version: tuple[int, int]) -> bool:
    """Whether it really is what its name says: pyenv's shims answer to every name."""
    tell = [path, "-c", "import sys, venv; print(*sys.version_info[:2])"]
    told = subprocess.run(tell, capture_output=True, text=True)
    return told.stdout.split() == [str(part) for part in version]


def chosen(version: tuple[int, int], django: str) -> tuple[str, ...]:
    """What of the tests one Python runs with one Django."""
    return {NEWEST: NEARLY_ALL, MIDDLE: WITH_EXAMPLE}.get((version, django), AGAIN)


def prepare(python: Interpreter) -> int:
    """What the tests need, and not more: each has an environment of its own."""
    return run(python.path, "-c", PREPARE, TOOLS_ENVIRONMENT=python.environment)


def runs(python: Interpreter, arguments: list[str]) -> Iterator[Outcome]:
    place = {"TOOLS_ENVIRONMENT": python.environment}
    if code := prepare(python):
        yield Outcome(f"Python {python.label}", code, 0.0)
        return
    for django in DJANGOS[python.version]:
        began = time.monotonic()
        label = f"Python {python.label}, Django {django}"
        print(f"\n##### {label}", flush=True)
        quick = chosen(python.version, django)
        code = run(python.inside, "-m", "pip", "install", "-q", f"django~={django}.0")
        code = code or run(python.inside, "-m", "tools", "test", *quick, *arguments, **place)
        yield Outcome(label, code, time.monotonic() - began)
