import os
import subprocess

import pytest

from tools import ci
from tools.environment import ROOT


def test_the_tests_come_last():
    labels = [label for label, command in ci.steps()]
    assert labels[-1] == "test"
    assert labels[0] == "install"
    assert {"clients", "lint", "types", "demo", "matrix", "faults"} <= set(labels)


def test_the_requirements_are_compared_where_there_is_a_specification(monkeypatch):
    monkeypatch.delenv("MCP_SPEC", raising=False)
    assert "requirements" not in dict(ci.steps())
    monkeypatch.setenv("MCP_SPEC", "/somewhere/spec")
    assert dict(ci.steps())["requirements"][-1] == "ARGS=compare /somewhere/spec"


@pytest.fixture
def one_step(monkeypatch, tmp_path):
    def step(command):
        monkeypatch.setattr(ci, "steps", lambda: iter([("first", command), ("then", ("true",))]))
        monkeypatch.setattr(ci, "REPORT", tmp_path / "tests.json")
        monkeypatch.setattr(ci.os, "environ", dict(os.environ))

    return step


@pytest.mark.parametrize(("command", "code"), [("true", 0), ("false", 1)])
def test_a_failed_step_fails_the_whole_and_ends_nothing(one_step, command, code, capfd):
    one_step((command,))
    assert ci.main([]) == code
    told = capfd.readouterr().out
    assert ("FAILED" in told) == bool(code)
    assert "then" in told.splitlines()[-1]


def test_the_counts_are_the_last_line(one_step, tmp_path, capfd):
    one_step(("true",))
    suite = {"passed": 2, "failed": 0, "skipped": 1}
    ci.REPORT.write_text(ci.json.dumps([suite, suite]))
    ci.main([])
    assert capfd.readouterr().out.splitlines()[-1] == "4 passed, 0 failed, 2 skipped"


def test_the_script_is_a_program():
    script = ROOT / ".ci" / "run"
    assert subprocess.run(["bash", "-n", script]).returncode == 0
    kept = subprocess.run(
        ["git", "ls-files", "-s", ".ci/run"], cwd=ROOT, capture_output=True, text=True
    )
    assert kept.stdout.startswith("100755")
