import os
import sys

import pytest

from tools import matrix


def test_an_interpreter_is_asked_what_it_is(tmp_path):
    assert matrix.works(sys.executable, sys.version_info[:2])
    assert not matrix.works(sys.executable, (3, 2))


@pytest.mark.skipif(os.name == "nt", reason="the pretender is a shell script")
def test_a_pretender_is_not_taken(tmp_path, monkeypatch):
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert matrix.find((3, 12)) is None


def test_this_interpreter_is_not_among_the_others():
    assert sys.version_info[:2] not in [python.version for python in matrix.others()]


def test_every_interpreter_is_supported_by_the_project():
    from tools.environment import ROOT

    classifiers = (ROOT / "pyproject.toml").read_text()
    for version, djangos in matrix.DJANGOS.items():
        assert "Python :: {}.{}".format(*version) in classifiers
        assert all(f"Django :: {django}" in classifiers for django in djangos)


def test_an_outcome_is_one_line():
    assert str(matrix.Outcome("Python 3.12", 1, 2.0)).endswith("FAILED")
    assert str(matrix.Outcome("Python 3.12", 0, 2.0)).endswith("ok")


def test_every_pair_is_tried_and_the_newest_with_nearly_everything():
    newest = max(matrix.DJANGOS)
    assert (newest, matrix.DJANGOS[newest][-1]) == matrix.NEWEST
    assert matrix.chosen(*matrix.NEWEST) == matrix.NEARLY_ALL
    for version, djangos in matrix.DJANGOS.items():
        assert all("--only" in matrix.chosen(version, django) for django in djangos)


def test_what_is_left_out_of_a_pair_runs_with_its_django_and_with_its_python_elsewhere():
    pairs = {(version, django) for version, all_of in matrix.DJANGOS.items() for django in all_of}
    oldest = min(matrix.DJANGOS)  # whose own run is that of everything
    more = {pair for pair in pairs if matrix.chosen(*pair) != matrix.AGAIN or pair[0] == oldest}
    assert {version for version, _ in more} == {version for version, _ in pairs}
    assert {django for _, django in more} == {django for _, django in pairs}


def test_environments_may_be_made_before(monkeypatch):
    made = []
    monkeypatch.setattr(matrix, "others", lambda: iter("ab"))
    monkeypatch.setattr(matrix, "prepare", lambda python: made.append(python) or int(python == "a"))
    assert matrix.main(["--prepare"]) == 1
    assert made == ["a", "b"]
