"""The table of requirements, compared with the list of sentences and the tests that it names.

``python -m tools.requirements compare`` compares the list with a checkout of the specification.
"""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tools import requirements
from tools.requirements import Requirement

ROOT = Path(__file__).parent.parent.parent
MAX_REQUIREMENTS_PER_TEST = 6
UNTESTED = 0  # requirements without a test; the number must not increase

TABLE = requirements.table()
KEPT = requirements.kept()
BINDING = requirements.binding(KEPT)
NAMED = sorted({name for entry in TABLE for name in entry.tests})


def given_reasons(entry: Requirement) -> list[str]:
    given = {
        "tests": entry.tests,
        "not-applicable": entry.not_applicable,
        "later": entry.later,
        "todo": entry.todo,
    }
    return [name for name, value in given.items() if value]


@cache
def functions(path: Path) -> frozenset[str]:
    """Return ``test_x`` and ``TestY::test_x`` of a module, also of those below an ``if``."""
    return frozenset(names(ast.parse(path.read_text(encoding="utf-8")), ""))


def names(tree: ast.AST, prefix: str) -> set[str]:
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(prefix + node.name)
        elif isinstance(node, ast.ClassDef):
            found |= names(node, f"{prefix}{node.name}::")
        elif isinstance(node, ast.stmt):
            found |= names(node, prefix)
    return found


def exists(name: str) -> bool:
    file, _, function = name.partition("::")
    called_test = function.rpartition("::")[2].startswith("test_")
    path = ROOT / file
    return called_test and path.is_file() and function in functions(path)


def test_every_sentence_that_binds_a_server_is_covered_exactly_once():
    named = requirements.coverage(TABLE)
    covering = {
        str(sentence): [id for name in requirements.names(sentence) for id in named.get(name, [])]
        for sentence in BINDING
    }
    assert {sentence: ids for sentence, ids in covering.items() if len(ids) != 1} == {}


def test_every_covered_sentence_is_listed_and_binds_a_server():
    binding = {name for sentence in BINDING for name in requirements.names(sentence)}
    covered = requirements.coverage(TABLE)
    assert {name: ids for name, ids in covered.items() if name not in binding} == {}


def test_every_requirement_covers_a_sentence_and_has_a_text():
    assert [entry.id for entry in TABLE if not (entry.covers and entry.says.strip())] == []


def test_ids_are_unique_and_well_formed():
    form = re.compile(r"[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*")
    counted = Counter(entry.id for entry in TABLE)
    assert [id for id, times in counted.items() if times > 1 or not form.fullmatch(id)] == []


def test_every_requirement_has_tests_or_exactly_one_reason_for_none():
    assert {e.id: given_reasons(e) for e in TABLE if len(given_reasons(e)) != 1} == {}


def test_every_named_test_exists():
    assert [name for name in NAMED if not exists(name)] == []


def test_number_of_requirements_for_each_test_is_limited():
    counted = Counter(name for entry in TABLE for name in set(entry.tests))
    assert {
        name: times for name, times in counted.items() if times > MAX_REQUIREMENTS_PER_TEST
    } == {}


def test_number_of_requirements_without_a_test_is_as_stated(capsys):
    todo = len([entry for entry in TABLE if entry.todo])
    with capsys.disabled():
        print(f"\n{todo} requirements still need a test: python -m tools requirements todo")
    assert todo == UNTESTED, "set UNTESTED to the new number; it may only go down"


def test_every_decision_is_about_a_listed_sentence_and_names_a_party():
    digests = {sentence.digest for sentence in KEPT}
    others = requirements.PARTIES[1:]
    stray = {d: p for d, (p, _) in requirements.decisions().items() if d not in digests}
    unknown = {d: p for d, (p, _) in requirements.decisions().items() if p not in others}
    assert (stray, unknown) == ({}, {})


def test_requirements_of_authorization_servers_are_not_excluded():
    """This project contains an authorization server."""
    assert "authorization-server" not in requirements.PARTIES
    assert [d for d, (p, _) in requirements.decisions().items() if p.startswith("auth")] == []
    assert [entry.id for entry in TABLE if "authorization" in entry.later] == []
    assert [e.id for e in TABLE if e.area in ("authorization", "oauth") and e.later] == []


def test_reasons_do_not_mention_later_steps():
    reasons = {entry.id: entry.later + entry.not_applicable for entry in TABLE}
    assert [
        id for id, why in reasons.items() if re.search(r"arrives?|later step|so far", why)
    ] == []


def test_no_sentence_is_decided_or_listed_twice():
    decided = Counter(digest for digest, *_ in requirements.lines("decisions.txt"))
    listed = Counter((sentence.page, sentence.number) for sentence in KEPT)
    assert [key for key, times in (decided + listed).items() if times > 1] == []


@pytest.mark.parametrize(
    "name",
    [
        "tests/requirements/test_requirements.py::test_that_does_not_exist",
        "tests/requirements/test_requirements.py::given_reasons",
        "tests/requirements/no_such_file.py::test_x",
        "tests/requirements/test_requirements.py",
    ],
)
def test_missing_test_is_noticed(name):
    assert not exists(name)


def test_tests_in_classes_and_below_conditions_are_found():
    source = "class TestA:\n    async def test_b(self): ...\nif True:\n    def test_c(): ...\n"
    assert names(ast.parse(source), "") == {"TestA::test_b", "test_c"}
