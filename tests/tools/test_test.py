import json
import os
import subprocess
import sys

import pytest

from tools import test
from tools.environment import ROOT

SAMPLE = """
import pytest
def test_good(): pass
def test_also_good(): pass
def test_bad(): assert False
@pytest.fixture
def broken(): raise ValueError
def test_broken(broken): pass
def test_absent(): pytest.skip("no time")
"""


def test_a_suite_is_counted(tmp_path):
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    suite = test.Suite("Sample", (str(tmp_path),))
    result = test.run_suite(suite, ["-p", "no:django", "-p", "no:randomly", "-q", "-n", "0"])
    assert (result.passed, result.failed, result.skipped) == (2, 2, 1)
    assert result.code == 1
    assert result.seconds > 0
    assert "FAILED" in str(result)


def test_a_suite_without_tests_is_a_failure(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    result = test.run_suite(
        test.Suite("None", (str(tmp_path),)), ["-p", "no:django", "-q", "-n", "0"]
    )
    assert (result.passed, result.code) == (0, 5)


@pytest.fixture
def no_postgres(monkeypatch):
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    monkeypatch.setenv("PGPORT", "1")


def test_what_is_absent_is_told_why(no_postgres):
    result = test.outcome("postgres", required=False, for_pytest=[])
    assert result.code == 0
    assert str(result).startswith(
        "PostgreSQL       skipped: no PostgreSQL lets us in at 127.0.0.1:1"
    )
    assert "PGHOST" in str(result)


def test_what_is_required_must_not_be_absent(no_postgres):
    result = test.outcome("postgres", required=True, for_pytest=[])
    assert result.code == 1
    assert "FAILED" in str(result)


def run_tests(tmp_path, *arguments, **environ):
    """The command as a person types it, its report put aside."""
    start = "import sys, pathlib, tools.test as t; t.REPORT = pathlib.Path(sys.argv[1]); "
    return subprocess.run(
        [
            sys.executable,
            "-c",
            start + "sys.exit(t.main(sys.argv[2:]))",
            tmp_path / "r",
            *arguments,
        ],
        cwd=ROOT,
        env={**os.environ, "PGHOST": "127.0.0.1", "PGPORT": "1", "CI": "", **environ},
        capture_output=True,
        text=True,
    )


def test_a_skip_is_no_failure_until_it_is(tmp_path):
    only = ["--only", "postgres"]
    assert run_tests(tmp_path, *only).returncode == 0
    assert run_tests(tmp_path, *only, "--require", "postgres").returncode == 1
    assert run_tests(tmp_path, *only, CI="true").returncode == 1


def test_the_last_line_counts(tmp_path):
    done = run_tests(tmp_path, "--only", "example", "-q", "-n", "0", "-k", "test_plain_is_stable")
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == "tests: 1 passed, 0 failed, 0 skipped"
    assert json.loads((tmp_path / "r").read_text())[0]["passed"] == 1


def test_arguments_of_pytest_are_handed_on(tmp_path):
    done = run_tests(tmp_path, "--only", "example", "--", "-q", "-n", "0", "-k", "no_such_test")
    assert done.returncode == 1
    assert "FAILED (5)" in done.stdout


def test_an_unknown_suite_is_a_mistake(tmp_path):
    done = run_tests(tmp_path, "--only", "oracle")
    assert done.returncode == 2
    assert (
        "oracle: not of sqlite, example, browser, clients, conformance, postgres, mariadb"
        in done.stderr
    )


def test_suites_are_the_databases_of_the_settings():
    for name, suite in test.SUITES.items():
        assert suite.environ["TEST_DATABASE"] == (name if suite.server else "sqlite")


def test_what_is_required_is_said_to_the_tests(tmp_path):
    (tmp_path / "test_sample.py").write_text(
        "import os\ndef test_it(): assert os.environ['TESTS_REQUIRED'] == '1'\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    suite, quiet = test.Suite("Sample", (str(tmp_path),)), ["-p", "no:django", "-q", "-n", "0"]
    assert test.run_suite(suite, quiet, required=True).passed == 1
    assert test.run_suite(suite, quiet, required=False).failed == 1
