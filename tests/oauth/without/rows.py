"""What a row of the tables is, and where what it names is to be found.

Rule: a removal is text for text, in files of ``django_mcp``, and the code that is left is whole: it
runs, and is wrong in one thing. What must fail is named, so that no other failure passes for it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DATABASES = ("sqlite", "postgres", "mariadb")
WITH_WRITERS = DATABASES[1:]  # of which several write at once: SQLite has one
ROOT = Path(__file__).parents[3]
TESTS = ROOT / "tests" / "oauth"
# Of what fails, by pytest's words for it: what was asserted, or raised that should not be.
ASSERTED = r"assert |AssertionError|Failed: DID NOT RAISE"
# Docstrings of attacks begin by the threats that they are: "T24, T22: ...".
NAMED = re.compile(r"((?:T\d+|private_key_jwt)(?:, T\d+)*): ")


@dataclass(frozen=True, slots=True)
class Edit:
    """``old``, which is in the file once, becomes ``new``. ``file`` is below ``django_mcp``."""

    file: str
    old: str
    new: str = ""

    @property
    def path(self) -> str:
        return f"django_mcp/{self.file}"


@dataclass(frozen=True, slots=True)
class Removal:
    """A defence, how it is taken away, and the tests of which each must then fail.

    ``by`` is a pattern of how: another than by assertion where the attack shows as an error.
    ``on`` are the databases that do not hold off the attack themselves.
    """

    threat: str
    defence: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    by: str = ASSERTED
    on: tuple[str, ...] = DATABASES

    def applied(self, read: Callable[[str], str]) -> dict[str, str]:
        """The files as they are without it, by their path; ``ValueError`` if it does not fit.

        ``read`` tells what is in a file now.
        """
        found: dict[str, str] = {}
        for edit in self.edits:
            text = found.get(edit.path) or read(edit.path)
            if text.count(edit.old) != 1 or edit.new == edit.old:
                raise ValueError(f"In {edit.file} {text.count(edit.old)} times: {edit.old!r}")
            found[edit.path] = text.replace(edit.old, edit.new)
        return found


@cache
def attacks() -> dict[str, tuple[str, tuple[str, ...]]]:
    """The tests that say which threat they are, by their name: the file, and the threats."""
    return {
        test.name: (path.name, tuple(found[1].split(", ")))
        for path in sorted(TESTS.glob("test_*.py"))
        for test in functions(path)
        if (found := NAMED.match(ast.get_docstring(test) or ""))
    }


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.parse(path.read_text("utf-8")).body:
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and node.name.startswith("test_"):
            yield node
