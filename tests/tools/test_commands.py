"""The commands of `python -m tools` and the targets of the Makefile are the same."""

import re

import pytest

from tools import ROOT
from tools.__main__ import COMMANDS, main

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_makefile_has_a_target_for_each_command():
    targets = re.findall(r"^([a-z-]+): +; @\$\(PYTHON\) -m tools ([a-z-]+)", MAKEFILE, re.M)
    assert targets == [(name, name) for name in ("help", *COMMANDS)]
    (phony,) = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.M)
    assert phony.split() == ["help", *COMMANDS]


def test_help_lists_mutations(capsys):
    assert main(["help"]) == 0
    assert re.search(r"^  mutations +\S", capsys.readouterr().out, re.M)


@pytest.mark.parametrize(
    ("given", "run"),
    [
        ([], ["requirements", "--sample", "150", "--jobs", "2"]),
        (["--seed", "7"], ["requirements", "--sample", "150", "--jobs", "2", "--seed", "7"]),
        (["T14"], ["T14"]),
        (["requirements", "--sample", "6"], ["requirements", "--sample", "6"]),
    ],
)
def test_mutations_samples_requirements_unless_a_subject_is_named(monkeypatch, given, run):
    from tools import mutations

    ran = []
    monkeypatch.setattr(mutations, "module", lambda *words: ran.append(list(words)) or 0)
    assert mutations.main(given) == 0
    assert ran == [["tests.mutations", *run]]
