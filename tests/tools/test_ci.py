import os
import subprocess
import sys

import pytest

from tools import ci
from tools.__main__ import COMMANDS
from tools.environment import ROOT


def side_by_side():
    return {label: command for lane in ci.lanes() for label, command in lane.items()}


def test_everything_is_run_and_the_tests_come_last():
    assert [*ci.alone()][-1] == "test"
    all_of = {*side_by_side(), *ci.alone()}
    assert {"clients", "lint", "types", "demo", "matrix", "faults"} <= all_of


def test_the_requirements_are_compared_where_there_is_a_specification(monkeypatch):
    monkeypatch.delenv("MCP_SPEC", raising=False)
    assert "requirements" not in side_by_side()
    monkeypatch.setenv("MCP_SPEC", "/somewhere/spec")
    assert side_by_side()["requirements"][-1] == "ARGS=compare /somewhere/spec"


def test_what_one_lane_needs_is_installed_before_another_works_there():
    wanted = {extra for lane in ci.lanes() for label in lane for extra in extras(label)}
    assert wanted <= set(COMMANDS["install"].extras)


def extras(label):
    command = COMMANDS.get(label)
    return () if command is None or command.alone else command.extras


SAY = (sys.executable, "-c", "print('some words')")


@pytest.fixture
def one_step(monkeypatch, tmp_path):
    def step(command, beside=("true",)):
        monkeypatch.setattr(ci, "tool", lambda *arguments: ("true",))
        monkeypatch.setattr(ci, "lanes", lambda: iter([{"beside": beside}, {"said": SAY}]))
        monkeypatch.setattr(ci, "alone", lambda: {"first": command, "then": ("true",)})
        monkeypatch.setattr(ci, "REPORT", tmp_path / "tests.json")
        monkeypatch.setattr(ci.os, "environ", dict(os.environ))

    return step


def test_what_a_lane_prints_comes_in_one_piece_and_its_failure_fails_the_whole(one_step, capfd):
    one_step(("true",), beside=("false",))
    assert ci.main([]) == 1
    told = capfd.readouterr().out.splitlines()
    at = told.index("some words")
    assert told[at - 1].startswith("##### said:") and told[at + 1].startswith("said ")
    assert [line for line in told if "FAILED" in line][-1].startswith("beside ")


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
