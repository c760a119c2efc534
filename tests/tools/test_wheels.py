"""What is fetched is what is committed; the index itself is asked by the scripts, in `make ci`."""

import subprocess
import sys

import pytest

from tools import wheels
from tools.environment import ROOT
from tools.wheels import Fetched, alone, call, cloned


def test_it_is_told_what_was_fetched():
    assert str(Fetched(3, 1_500_000, 12.34)) == "3 files, 1.5 MB, in 12.3 s"


def test_pip_looks_into_the_folder_and_nowhere_else(tmp_path):
    asked = [sys.executable, "-m", "pip", "config", "debug"]
    told = subprocess.run(asked, env=alone(tmp_path), capture_output=True, text=True).stdout
    assert f"PIP_FIND_LINKS='{tmp_path}'" in told and "PIP_NO_INDEX='1'" in told


def test_what_is_built_is_a_clone_that_is_no_part_of_the_checkout(tmp_path):
    folder = cloned(tmp_path / "source")
    told = ["git", "rev-parse", "HEAD"]
    commits = {subprocess.run(told, cwd=one, capture_output=True).stdout for one in (ROOT, folder)}
    assert len(commits) == 1 and (folder / "pyproject.toml").exists()


def test_the_project_is_called_as_it_calls_itself():
    assert f'name = "{wheels.PROJECT}"' in (ROOT / "pyproject.toml").read_text("utf-8")


def test_a_failure_shows_what_was_said(capfd):
    with pytest.raises(SystemExit, match="failed"):
        call(sys.executable, "-c", "print('no index'); raise SystemExit(2)")
    assert "no index" in capfd.readouterr().err
