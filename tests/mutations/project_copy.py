"""A copy of the project, to which a mutation is applied while tests run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from .mutation import ROOT, Mutation

COPIED = ("django_mcp", "docs", "tests", "tools", "example_project", "pyproject.toml", "README.md")
BROKEN = re.compile(r"(?:ImportError|ModuleNotFoundError|NameError|SyntaxError|UnboundLocalError)")
TIMEOUT_SECONDS = 900  # for the tests of one mutation
PYTEST = (
    sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
    "-p", "no:randomly", "-o", "addopts=", "--timeout=40",
    "--nomigrations", "--reuse-db",  # migrations are the same in every mutation
)  # fmt: skip
Failures = dict[str, set[str]]  # the messages of the failures, by node id without parameters


class ProjectCopy:
    """A copy in a folder that exists. The project itself is never changed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._report = folder, folder / "report.xml"
        for name in COPIED:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "node_modules", "*.sqlite3*")
                shutil.copytree(ROOT / name, folder / name, ignore=ignored)
            else:
                shutil.copy(ROOT / name, folder / name)

    @contextmanager
    def mutated(self, mutation: Mutation) -> Iterator[None]:
        after = mutation.applied(self._read)
        before = {path: self._read(path) for path in after}
        try:
            for path, text in after.items():
                self._write(path, text)
            yield
        finally:
            for path, text in before.items():
                self._write(path, text)

    def _read(self, path: str) -> str:
        return (self.folder / path).read_text("utf-8")

    def _write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.write_text(text, "utf-8")
        # Bytecode is matched by time and size: a mutation within a second may keep both.
        for old in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            old.unlink()

    def failures(self, tests: Iterable[str], *, first: bool = False) -> Failures:
        """Run tests, given as node ids, and return what failed, or only the ``first`` failure.

        Raises ``RuntimeError`` if none ran.
        """
        self._report.unlink(missing_ok=True)
        done = subprocess.run(
            [*PYTEST, f"--junit-xml={self._report}", *("-x",) * first, *sorted(set(tests))],
            cwd=self.folder, env=self._environment(), capture_output=True, text=True,
            timeout=TIMEOUT_SECONDS,
        )  # fmt: skip
        if done.returncode not in (0, 1) or not self._report.exists():
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
        return failures_of(self._report.read_text("utf-8"))

    def _environment(self) -> dict[str, str]:
        """Import the copy, with bytecode, which makes it three times as fast."""
        copied = {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": ""}
        return {**os.environ, **copied}


def failures_of(report: str) -> Failures:
    """Return the failures of a report in JUnit's format, errors of fixtures included."""
    found: Failures = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        for wrong in (*case.findall("failure"), *case.findall("error")):
            name = case.get("name", "").partition("[")[0]
            found.setdefault(name, set()).add(wrong.get("message", ""))
    return found


def why_unnoticed(mutation: Mutation, tests: Sequence[str], failures: Failures) -> str | None:
    """Return why no test noticed the mutation as it must, in a line; None if it was noticed.

    Every test must fail for a threat, and any one for a requirement.
    """
    if broken := [how for hows in failures.values() for how in hows if BROKEN.match(how)]:
        return f"the mutation is broken: {broken[0][:200]}"
    missed = []
    for test in (one.rpartition("::")[2] for one in tests):
        hows = failures.get(test, set())
        if not any(re.match(mutation.failure, how) for how in hows):
            said = next(iter(hows), "it passed").splitlines()[0][:200]
            missed.append(f"{test} did not fail as it must: {said}")
    is_unnoticed = missed if mutation.is_threat else len(missed) == len(tests)
    return missed[0] if is_unnoticed else None
