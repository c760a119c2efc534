"""A copy of the project, in which a defence is taken away and given back, and tests are run.

Rule: the project itself is never touched. How a test failed is read from pytest's own report: what
cannot be imported, or does not know its names, is a removal that was made badly.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from .rows import ROOT, Removal, attacks

COPIED = ("django_mcp", "tests", "example_project", "pyproject.toml")
BROKEN = re.compile(r"(?:ImportError|ModuleNotFoundError|NameError|SyntaxError|UnboundLocalError)")
LONGEST = 900  # seconds that the tests of one removal may take
PYTEST = (
    sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
    "--timeout=60", "--nomigrations", "--reuse-db",  # it is not migrations that are tried here
)  # fmt: skip
Failures = dict[str, set[str]]  # by the name of a test, how its cases failed


class Copy:
    """Of all that the tests of attacks need, in a folder that is there already."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._report = folder, folder / "report.xml"
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(
                    ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
                )
            else:
                shutil.copy(ROOT / name, folder / name)

    @contextmanager
    def without(self, removal: Removal) -> Iterator[None]:
        after = removal.applied(self._read)
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
        """Without the bytecode of before, which may seem to be of now."""
        file = self.folder / path
        file.write_text(text, "utf-8")
        for old in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            old.unlink()

    def failures(self, tests: Iterable[str]) -> Failures:
        """Run tests, by their names; which failed. Raises ``RuntimeError`` if none ran."""
        self._report.unlink(missing_ok=True)
        named = [f"tests/oauth/{attacks()[test][0]}::{test}" for test in sorted(set(tests))]
        done = subprocess.run(
            [*PYTEST, f"--junit-xml={self._report}", *named],
            cwd=self.folder, env=self._environment(), capture_output=True, text=True,
            timeout=LONGEST,
        )  # fmt: skip
        if done.returncode not in (0, 1) or not self._report.exists():
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
        return read(self._report.read_text("utf-8"))

    def _environment(self) -> dict[str, str]:
        """The copy is what is imported, with bytecode, which makes it three times as fast."""
        copied = {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": ""}
        return {**os.environ, **copied}


def read(report: str) -> Failures:
    """The failures, and errors around tests, of a report in JUnit's format."""
    found: Failures = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        for wrong in (*case.findall("failure"), *case.findall("error")):
            name = case.get("name", "").partition("[")[0]
            found.setdefault(name, set()).add(wrong.get("message", ""))
    return found


def problem(removal: Removal, failures: Failures) -> str | None:
    """Why a removal was not noticed as it must be, in a line; None if it was."""
    if broken := [how for hows in failures.values() for how in hows if BROKEN.match(how)]:
        return f"the removal is broken: {broken[0][:200]}"
    for test in removal.tests:
        hows = failures.get(test, set())
        if not any(re.match(removal.by, how) for how in hows):
            said = next(iter(hows), "it passed").splitlines()[0][:200]
            return f"{test} did not fail as it must: {said}"
    return None
