"""Every mutation fits the code and has tests, and only failed assertions of these count."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from xml.sax.saxutils import quoteattr

import pytest

from . import requirements, threats
from .__main__ import CITED, cited_tests, main
from .mutation import OAUTH_TESTS, ROOT, Edit, Mutation, functions_of_tests, threat_tests
from .project_copy import failures_of, why_unnoticed

MUTATIONS = [*threats.MUTATIONS, *requirements.MUTATIONS]


# A mutation that names a module or a method that does not exist changes nothing, or breaks the code
# in another way than it says.
METHOD = re.compile(r'"((?:notifications|tools|resources|prompts|subscriptions)/[a-z_/]+)"')
KNOWN_METHODS = {
    name
    for path in (ROOT / "django_mcp").rglob("*.py")
    for name in METHOD.findall(path.read_text())
}


def missing_imports(path: str, tree: ast.Module) -> Iterator[str]:
    """Iterate over the relative imports of modules that do not exist."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            module = (ROOT / path).parents[node.level - 1].joinpath(*node.module.split("."))
            if not (module.is_dir() or module.with_suffix(".py").exists()):
                yield node.module


@pytest.mark.parametrize("subject", sorted({one.subject for one in MUTATIONS}))
def test_every_mutation_fits_the_code(subject):
    for one in (one for one in MUTATIONS if one.subject == subject):
        changed = one.applied(lambda path: (ROOT / path).read_text("utf-8"))
        assert changed, one
        for path, text in changed.items():
            if path.endswith(".py"):
                assert [*missing_imports(path, ast.parse(text))] == []
        assert {name for edit in one.edits for name in METHOD.findall(edit.new)} <= KNOWN_METHODS


def test_every_mutation_names_tests_of_its_subject():
    for one in MUTATIONS:
        if not one.is_threat:
            assert cited_tests(one) and set(one.tests) <= set(CITED[one.subject]), one
        else:
            assert one.tests and all(one.subject in threat_tests()[test][1] for test in one.tests)


def test_tests_of_threats_have_unique_names():
    names = Counter(
        test.name for path in OAUTH_TESTS.glob("test_*.py") for test in functions_of_tests(path)
    )
    assert [name for name in threat_tests() if names[name] > 1] == []


def report(*messages: str) -> str:
    cases = (
        f'<testcase name="test_a[{number}]"><failure message={quoteattr(one)}/></testcase>'
        for number, one in enumerate(messages)
    )
    return f"<suite>{''.join(cases)}<testcase name='test_b'/></suite>"


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (("assert 1 == 2", "KeyError: 'a'"), None),
        ((), "test_a did not fail as it must: it passed"),
        (("KeyError: 'a'",), "test_a did not fail as it must: KeyError: 'a'"),
        (("assert 1", "NameError: name 'a'"), "the mutation is broken: NameError: name 'a'"),
    ],
)
def test_only_failed_assertions_count(messages, expected):
    mutation = Mutation("T1", "a", (Edit("a.py", "a"),), ("test_a",))
    assert why_unnoticed(mutation, ["x.py::test_a"], failures_of(report(*messages))) == expected


@pytest.mark.parametrize(("subject", "noticed"), [("T1", False), ("area.row", True)])
def test_threats_need_all_tests_to_fail_and_requirements_one(subject, noticed):
    mutation = Mutation(subject, "a", ())
    failures = failures_of(report("assert 1"))
    assert (why_unnoticed(mutation, ["x::test_a", "x::test_b"], failures) is None) is noticed


@pytest.mark.parametrize(("old", "new"), [("c", "d"), ("a", "c"), ("b", "b")])
def test_edit_that_does_not_fit_is_refused(old, new):
    mutation = Mutation("T1", "a", (Edit("a.py", old, new),), ("test_a",))
    with pytest.raises(ValueError, match=r"In a\.py"):
        mutation.applied(lambda path: "aba")


def test_every_row_that_cites_tests_has_a_mutation():
    citing = {row for row, tests in CITED.items() if tests}
    assert citing == {one.subject for one in requirements.MUTATIONS}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sample_of_requirement_mutations_is_noticed(capsys, monkeypatch):
    monkeypatch.setenv("TEST_DATABASE", "sqlite")  # the rows hold on every database
    code = main(["requirements", "--sample", "6", "--jobs", "2", "--database", "sqlite"])
    assert code == 0, capsys.readouterr().out
