"""The table of requirements against the kept list of sentences, and against the tests it names.

Whether the kept list is that of the specification is for `python -m tools.requirements compare`
to say, where there is a checkout of it.
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
AT_MOST = 6
TODO = 0  # requirements without a test so far: to be brought down to none, never up

TABLE = requirements.table()
KEPT = requirements.kept()
BINDING = requirements.binding(KEPT)
NAMED = sorted({name for entry in TABLE for name in entry.tests})


def standings(entry: Requirement) -> list[str]:
    given = {
        "tests": entry.tests,
        "not-applicable": entry.not_applicable,
        "later": entry.later,
        "todo": entry.todo,
    }
    return [name for name, value in given.items() if value]


@cache
def functions(path: Path) -> frozenset[str]:
    """`test_x` and `TestY::test_x` of a module, also those below an `if`."""
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


def test_every_sentence_that_is_covered_is_kept_and_binds_a_server():
    binding = {name for sentence in BINDING for name in requirements.names(sentence)}
    covered = requirements.coverage(TABLE)
    assert {name: ids for name, ids in covered.items() if name not in binding} == {}


def test_every_requirement_covers_a_sentence_and_says_what_is_asked():
    assert [entry.id for entry in TABLE if not (entry.covers and entry.says.strip())] == []


def test_ids_are_unique_and_of_one_form():
    form = re.compile(r"[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*")
    counted = Counter(entry.id for entry in TABLE)
    assert [id for id, times in counted.items() if times > 1 or not form.fullmatch(id)] == []


def test_every_requirement_has_tests_or_one_reason_to_have_none():
    assert {e.id: standings(e) for e in TABLE if len(standings(e)) != 1} == {}


def test_every_named_test_exists():
    assert [name for name in NAMED if not exists(name)] == []


def test_no_test_stands_for_too_many_requirements():
    counted = Counter(name for entry in TABLE for name in set(entry.tests))
    assert {name: times for name, times in counted.items() if times > AT_MOST} == {}


def test_the_requirements_without_a_test_are_counted(capsys):
    todo = len([entry for entry in TABLE if entry.todo])
    with capsys.disabled():
        print(f"\n{todo} requirements still need a test: python -m tools requirements todo")
    assert todo == TODO, "set TODO to the new number; it may only go down"


def test_every_decision_is_about_a_kept_sentence_and_names_a_party():
    digests = {sentence.digest for sentence in KEPT}
    others = requirements.PARTIES[1:]
    stray = {d: p for d, (p, _) in requirements.decisions().items() if d not in digests}
    unknown = {d: p for d, (p, _) in requirements.decisions().items() if p not in others}
    assert (stray, unknown) == ({}, {})


def test_what_binds_an_authorization_server_is_left_to_nobody_else():
    """It is part of this project: what it must do has tests, and waits for nothing."""
    assert "authorization-server" not in requirements.PARTIES
    assert [d for d, (p, _) in requirements.decisions().items() if p.startswith("auth")] == []
    assert [entry.id for entry in TABLE if "authorization" in entry.later] == []
    assert [e.id for e in TABLE if e.area in ("authorization", "oauth") and e.later] == []


def test_no_reason_tells_how_the_repository_was_made():
    told = {entry.id: entry.later + entry.not_applicable for entry in TABLE}
    assert [id for id, why in told.items() if re.search(r"arrives?|later step|so far", why)] == []


def test_no_sentence_is_decided_or_kept_twice():
    decided = Counter(digest for digest, *_ in requirements.lines("decisions.txt"))
    listed = Counter((sentence.page, sentence.number) for sentence in KEPT)
    assert [key for key, times in (decided + listed).items() if times > 1] == []


@pytest.mark.parametrize(
    "name",
    [
        "tests/requirements/test_requirements.py::test_nothing_of_the_kind",
        "tests/requirements/test_requirements.py::standings",
        "tests/requirements/no_such_file.py::test_x",
        "tests/requirements/test_requirements.py",
    ],
)
def test_a_test_that_is_not_there_is_noticed(name):
    assert not exists(name)


def test_tests_in_classes_and_below_conditions_are_found():
    source = "class TestA:\n    async def test_b(self): ...\nif True:\n    def test_c(): ...\n"
    assert names(ast.parse(source), "") == {"TestA::test_b", "test_c"}
