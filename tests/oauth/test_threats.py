"""Every threat has its attacks, and each is seen to fail without what holds it off."""

from __future__ import annotations

import ast
import re
from collections import Counter
from xml.sax.saxutils import quoteattr

import pytest

from .without.copies import problem, read
from .without.rows import ROOT, TESTS, Edit, Removal, attacks, functions
from .without.tables import REMOVALS

THREATS = [f"T{number}" for number in range(1, 28)]
# By which an attack says what it is: a threat, a requirement, or the one way to authenticate.
SAYS = re.compile(r"(?:[TR]\d+(?:, [TR]\d+)*|private_key_jwt): ")
FILES = sorted(TESTS.glob("test_threats_*.py"))
PAGE = (ROOT / "docs" / "reference" / "oauth.md").read_text("utf-8")
ROW = re.compile(r"^\| (T\d+) \| [^|]+ \| ([^|]+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
NAME = re.compile(r"`([^`]+)`")


def of(threat: str) -> list[Removal]:
    return [row for row in REMOVALS if row.threat == threat]


@pytest.mark.parametrize("threat", THREATS)
def test_a_threat_has_attacks_and_something_to_take_away(threat):
    assert of(threat)
    assert [name for name, (_, threats) in attacks().items() if threat in threats]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_attack_says_what_it_is(path):
    said = {test.name: ast.get_docstring(test) or "" for test in functions(path)}
    assert [name for name, text in said.items() if not SAYS.match(text)] == []


def test_an_attack_is_named_once():
    """For a removal names tests by their name alone."""
    names = Counter(test.name for path in TESTS.glob("test_*.py") for test in functions(path))
    assert [name for name in attacks() if names[name] > 1] == []


@pytest.mark.parametrize("row", REMOVALS, ids=lambda row: f"{row.threat} {row.defence}")
def test_a_removal_fits_the_code(row):
    """Each text is there once, what is left is Python, and what must fail is of the threat."""
    found = row.applied(lambda path: (ROOT / path).read_text("utf-8"))
    for path, text in found.items():
        assert not path.endswith(".py") or ast.parse(text)
    assert row.tests and all(row.threat in attacks()[test][1] for test in row.tests)


def test_the_page_tells_of_every_threat():
    assert [threat for threat, *_ in ROW.findall(PAGE)] == THREATS


@pytest.mark.parametrize(("threat", "tests", "taken"), ROW.findall(PAGE))
def test_the_page_says_where_the_attacks_are_and_what_is_taken_away(threat, tests, taken):
    files = {file for file, threats in attacks().values() if threat in threats}
    edited = {edit.file.removeprefix("oauth/") for row in of(threat) for edit in row.edits}
    assert NAME.findall(tests) == sorted(files)
    assert NAME.findall(taken) == sorted(edited)


# What notices.


def report(*said: str) -> str:
    cases = (
        f'<testcase name="test_a[{number}]"><failure message={quoteattr(one)}/></testcase>'
        for number, one in enumerate(said)
    )
    return f"<suite>{''.join(cases)}<testcase name='test_b'/></suite>"


A_REMOVAL = Removal("T1", "a", (Edit("a.py", "a"),), ("test_a",))
RUNS = {
    ("assert 1 == 2", "KeyError: 'a'"): None,
    ("Failed: DID NOT RAISE <class 'ValueError'>",): None,
    (): "test_a did not fail as it must: it passed",
    ("KeyError: 'a'",): "test_a did not fail as it must: KeyError: 'a'",
    ("Failed: Timeout (>60.0s)",): "test_a did not fail as it must: Failed: Timeout (>60.0s)",
    ("assert 1", "NameError: name 'a'"): "the removal is broken: NameError: name 'a'",
}


@pytest.mark.parametrize(("said", "wrong"), RUNS.items())
def test_only_what_fails_as_it_must_is_noticed(said, wrong):
    assert problem(A_REMOVAL, read(report(*said))) == wrong


def test_every_test_that_is_named_must_fail():
    row = Removal("T1", "a", (), ("test_a", "test_b"))
    assert problem(row, read(report("assert 1"))) == "test_b did not fail as it must: it passed"


@pytest.mark.parametrize(("old", "new"), [("c", "d"), ("a", "c"), ("b", "b")])
def test_what_does_not_fit_is_no_removal(old, new):
    row = Removal("T1", "a", (Edit("a.py", old, new),), ("test_a",))
    with pytest.raises(ValueError, match=r"In a\.py"):
        row.applied(lambda path: "aba")
