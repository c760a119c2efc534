"""One mutation: the text that it replaces, and the tests that must then fail."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DATABASES = ("sqlite", "postgres", "mariadb")
WITH_WRITERS = DATABASES[1:]  # several connections write at once; SQLite has one writer
ROOT = Path(__file__).parents[2]
OAUTH_TESTS = ROOT / "tests" / "oauth"
# How pytest reports a failed assertion. Other exceptions count only where a mutation names them:
# a mutation that merely breaks the code shows nothing.
ASSERTED = r"assert |AssertionError|Failed: DID NOT RAISE"
COMMENT = re.compile(r"[ \t]*#")
# The docstring of a test of a threat begins with the threats: "T24, T22: ...".
THREATS = re.compile(r"((?:T\d+|private_key_jwt)(?:, T\d+)*): ")


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace ``old``, which occurs exactly once in ``file``, by ``new``; or all of it if empty.

    ``file`` is relative to ``django_mcp``, or to the root if it is in ``docs`` or ``tools``.
    """

    file: str
    old: str
    new: str = ""

    @property
    def path(self) -> str:
        return self.file if self.file.startswith(("docs/", "tools/")) else f"django_mcp/{self.file}"

    def applied(self, text: str) -> str:
        """Return the changed text. Raises ``ValueError`` if the edit does not fit it."""
        if not self.old:
            return self.new
        # A comment may be added or reworded without changing the mutations around it.
        lines = self.old.split("\n")
        code = [line for line in lines if not COMMENT.match(line)]
        pattern = r"\n(?:[ \t]*#.*\n)*".join(map(re.escape, code if any(code) else lines))
        found = re.findall(pattern, text)
        if len(found) != 1 or self.new == self.old:
            raise ValueError(f"In {self.file} {len(found)} times: {self.old!r}")
        return text.replace(found[0], self.new)


@dataclass(frozen=True, slots=True)
class Mutation:
    """A defect, and the tests that must notice it.

    ``subject`` is a threat (``T10``) or a requirement (``cancellation.stops``), and ``change`` says
    in words what the edits do. ``tests`` are names of test functions of `tests/oauth` for a threat,
    and node ids for a requirement, where none means all that the requirement cites. ``by`` is a
    pattern of the failure: by default a failed assertion for a threat, and any failure for a
    requirement, whose tests drive a client. ``on`` lists the databases on which the defect shows.
    """

    subject: str
    change: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...] = ()
    by: str = ""
    on: tuple[str, ...] = DATABASES

    @property
    def is_threat(self) -> bool:
        return "." not in self.subject

    @property
    def failure(self) -> str:
        """Return the pattern that the message of a failure must match."""
        return self.by or (ASSERTED if self.is_threat else "")

    def applied(self, read: Callable[[str], str]) -> dict[str, str]:
        """Return the changed files, by path. ``read`` returns the present text of a path.

        Raises ``ValueError`` if an edit does not fit the code.
        """
        changed: dict[str, str] = {}
        for edit in self.edits:
            changed[edit.path] = edit.applied(changed.get(edit.path) or read(edit.path))
        return changed


@cache
def threat_tests() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the tests of threats by function name: the node id, and the threats."""
    return {
        test.name: (f"tests/oauth/{path.name}::{test.name}", tuple(found[1].split(", ")))
        for path in sorted(OAUTH_TESTS.glob("test_*.py"))
        for test in functions_of_tests(path)
        if (found := THREATS.match(ast.get_docstring(test) or ""))
    }


def functions_of_tests(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Iterate over the test functions of a module, as syntax trees."""
    for node in ast.parse(path.read_text("utf-8")).body:
        function = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None
        if function is not None and function.name.startswith("test_"):
            yield function
