"""Every threat has tests and mutations, and the reference page lists them."""

from __future__ import annotations

import ast
import re

import pytest

from tests.mutations.mutation import OAUTH_TESTS, ROOT, Mutation, functions_of_tests, threat_tests
from tests.mutations.threats import MUTATIONS

THREATS = [f"T{number}" for number in range(1, 28)]
# By which an attack says what it is: a threat, a requirement, or the one way to authenticate.
SAYS = re.compile(r"(?:[TR]\d+(?:, [TR]\d+)*|private_key_jwt): ")
FILES = sorted(OAUTH_TESTS.glob("test_threats_*.py"))
PAGE = (ROOT / "docs" / "reference" / "oauth.md").read_text("utf-8")
ROW = re.compile(r"^\| (T\d+) \| [^|]+ \| ([^|]+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
NAME = re.compile(r"`([^`]+)`")


def of(threat: str) -> list[Mutation]:
    return [row for row in MUTATIONS if row.subject == threat]


def test_every_threat_has_tests_and_mutations():
    for threat in THREATS:
        assert of(threat), threat
        assert [name for name, (_, threats) in threat_tests().items() if threat in threats], threat


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_test_names_its_threat(path):
    said = {test.name: ast.get_docstring(test) or "" for test in functions_of_tests(path)}
    assert [name for name, text in said.items() if not SAYS.match(text)] == []


def test_reference_page_lists_every_threat_with_its_tests_and_files():
    assert [threat for threat, *_ in ROW.findall(PAGE)] == THREATS
    for threat, tests, mutated in ROW.findall(PAGE):
        nodes = [node for node, threats in threat_tests().values() if threat in threats]
        files = {node.partition("::")[0].rpartition("/")[2] for node in nodes}
        edited = {edit.file.removeprefix("oauth/") for row in of(threat) for edit in row.edits}
        assert NAME.findall(tests) == sorted(files), threat
        assert NAME.findall(mutated) == sorted(edited), threat
