"""`python -m tools matrix [--prepare]`: the quick tests on other Pythons and Djangos.

Every other interpreter that is found gets an environment of its own. The newest Python with the
newest Django runs all quick tests and the example project; the other pairs run the tests of what
uses Django most. All Pythons run at the same time, each with one Django after another. The output
of each pair is printed when it ends. `--prepare` makes the environments and runs nothing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, NamedTuple

from tools import ROOT
from tools.processes import run
from tools.test import ENVIRON

DJANGOS = {
    (3, 11): ("5.2",),
    (3, 12): ("5.2", "6.0", "6.1"),
    (3, 13): ("5.2", "6.0", "6.1"),
}
PARALLEL = ("-q", "-n", str(os.cpu_count() or 1), "--dist", "loadfile")
ALONE = ("-q", "-n", "0")
NEWEST = ((3, 13), "6.1")
NEWEST_TESTS = (*PARALLEL, "tests", "tests/example_project", "-m", "not slow")
ABOUT_DJANGO = (
    "tests/admin",
    "tests/bridges",
    "tests/declarations/fields",
    "tests/declarations/test_elicitation_forms.py",
    "tests/declarations/test_form_values.py",
    "tests/declarations/test_model_checks.py",
    "tests/declarations/test_model_queries.py",
    "tests/declarations/test_model_resources.py",
    "tests/declarations/test_permissions.py",
    "tests/declarations/test_search_tools.py",
    "tests/models",
    "tests/oauth/test_admin.py",
    "tests/web",
)
PREPARE = "from tools import environment; environment.prepare(('test',))"


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
    """The result of one Python with one Django."""

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
    found = list(others())
    with ThreadPoolExecutor(max(len(found), 1)) as pool:
        partly = pool.map(lambda python: list(runs(python, for_pytest)), found)
        outcomes = [one for several in partly for one in several]
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
    command = [path, "-c", "import sys, venv; print(*sys.version_info[:2])"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.split() == [str(part) for part in version]


def prepare(python: Interpreter) -> int:
    """What the tests need, and not more: each has an environment of its own."""
    return run(python.path, "-c", PREPARE, TOOLS_ENVIRONMENT=python.environment)


def runs(python: Interpreter, arguments: list[str]) -> Iterator[Outcome]:
    """Run the tests of each pair of this Python."""
    if code := prepare(python):
        yield Outcome(f"Python {python.label}", code, 0.0)
        return
    for django in DJANGOS[python.version]:
        tests = NEWEST_TESTS if (python.version, django) == NEWEST else (*ALONE, *ABOUT_DJANGO)
        with tempfile.TemporaryFile() as printed:
            outcome = run_pair(python, django, (*tests, *arguments), printed)
            printed.seek(0)
            print(f"\n{printed.read().decode('utf-8', 'replace')}\n{outcome}", flush=True)
        yield outcome


def run_pair(
    python: Interpreter, django: str, arguments: Sequence[str], printed: IO[bytes]
) -> Outcome:
    """Install a Django, and run pytest with these arguments."""
    began = time.monotonic()
    label = f"Python {python.label}, Django {django}"
    print(f"##### {label}", flush=True)
    install = (python.inside, "-m", "pip", "install", "-q", f"django~={django}.0")
    code = run(*install, into=printed)
    code = code or run(python.inside, "-m", "pytest", *arguments, into=printed, **ENVIRON)
    return Outcome(label, code, time.monotonic() - began)
