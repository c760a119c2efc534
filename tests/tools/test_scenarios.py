"""How a run of the conformance suite is read and judged."""

import json
from pathlib import Path

import pytest

from tools import scenarios
from tools.scenarios import AUTHORIZATION, FROZEN, NOBODYS_OWN, REQUIRED, SUCCEEDING

REVISIONS = list(FROZEN)


def written(folder: Path, scenario: str, **checks: str) -> None:
    """What the suite leaves of a scenario that had these checks, by their ids."""
    kind = "authorization-server" if scenario in REQUIRED[AUTHORIZATION] else "server"
    place = folder / f"{kind}-{scenario}-2026-11-21T07-40-13-882Z"
    place.mkdir(exist_ok=True)
    told = [{"id": id.replace("_", "-"), "status": status} for id, status in checks.items()]
    (place / "checks.json").write_text(json.dumps(told))


def succeeded(scenario: str) -> dict[str, str]:
    own = SUCCEEDING.get(scenario, {scenario})
    return dict.fromkeys([*own, NOBODYS_OWN], "SUCCESS") | {"incoming-request": "INFO"}


@pytest.fixture(params=REVISIONS)
def revision(request):
    return request.param


@pytest.fixture
def green(tmp_path, revision):
    """The results of a run in which everything required passed, and an extension did not."""
    for name in REQUIRED[revision]:
        written(tmp_path, name, **succeeded(name))
    written(tmp_path, "tasks-lifecycle", lifecycle="FAILURE")
    (tmp_path / "log.txt").write_text("=== SUMMARY ===")
    return tmp_path


@pytest.fixture
def authorized(tmp_path):
    """The same of an authorization server, of which all is required."""
    for name in REQUIRED[AUTHORIZATION]:
        written(tmp_path, name, **succeeded(name))
    return tmp_path


def test_the_frozen_lists_are_whole():
    assert {name: len(frozen.split()) for name, frozen in FROZEN.items()} == {
        "2025-11-25": 30,
        "2026-07-28": 37,
    }
    for names in REQUIRED.values():
        assert len(set(names)) == len(names)
    assert all(any(name in names for names in REQUIRED.values()) for name in SUCCEEDING)


def test_what_passed_has_no_problem(green, revision):
    verdict = scenarios.read(revision, green, 4.25)
    assert verdict.problems == []
    number = len(REQUIRED[revision])
    line, others = verdict.lines()
    assert line.startswith(f"{revision:<13} {number} of {number} scenarios, checks: ")
    assert line.endswith("0 failed, 0 warnings, 0 skipped    4.2 s")
    assert "0 of 1 scenarios, checks: 0 passed, 1 failed" in others and "not required" in others


@pytest.mark.parametrize("status", ["FAILURE", "WARNING", "SKIPPED"])
def test_one_check_is_enough_to_fail(green, revision, status):
    written(green, "tools-list", tools_list="SUCCESS", tools_name_format=status)
    verdict = scenarios.read(revision, green)
    assert verdict.problems == [f"tools-list:tools-name-format {status}"]
    number = len(REQUIRED[revision])
    line, _, problem = verdict.lines()
    assert f"{number - 1} of {number} scenarios" in line
    assert problem.strip() == verdict.problems[0]


def test_the_suite_says_why(green, revision):
    (folder,) = green.glob("server-prompts-list-*")
    told = {"errorMessage": "No\nprompts", "details": {"message": "Something else"}}
    checks = [{"id": "prompts-list", "status": "FAILURE", **told}]
    (folder / "checks.json").write_text(json.dumps(checks))
    first, second = scenarios.read(revision, green).problems
    assert first == "prompts-list:prompts-list FAILURE No prompts"
    assert second == "prompts-list:nothing of its own succeeded"


def test_what_threw_did_not_run(green, revision):
    (checks,) = green.glob("server-caching-*/checks.json" if "caching" in REQUIRED[revision]
                           else "server-ping-*/checks.json")  # fmt: skip
    checks.unlink()
    (problem,) = scenarios.read(revision, green).problems
    assert problem.endswith(":did not run to its end")


def test_what_left_nothing_did_not_run(tmp_path, revision):
    verdict = scenarios.read(revision, tmp_path)
    missing = {name: f"{name}:did not run to its end" for name in REQUIRED[revision]}
    assert verdict.problems == list(missing.values())


def test_an_authorization_server_has_a_set_of_its_own(authorized):
    verdict = scenarios.read(AUTHORIZATION, authorized, 1.5)
    (line,) = verdict.lines()
    assert verdict.problems == []
    assert line.startswith("authorization 2 of 2 scenarios, checks: 5 passed, 0 failed, ")


def test_what_needs_a_client_and_has_none_has_not_passed(authorized):
    grant = "authorization-code-grant"
    written(authorized, grant, authorization_code_grant="SKIPPED")
    problems = scenarios.read(AUTHORIZATION, authorized).problems
    assert problems == [f"{grant}:{grant} SKIPPED", f"{grant}:nothing of its own succeeded"]


def test_a_server_that_takes_no_documents_of_clients_has_not_passed(authorized):
    name = "authorization-server-metadata-endpoint"
    warned = {"authorization_server_metadata": "SUCCESS",
              "authorization_server_metadata_cimd": "WARNING"}  # fmt: skip
    written(authorized, name, **warned)
    assert scenarios.read(AUTHORIZATION, authorized).problems == [
        f"{name}:authorization-server-metadata-cimd WARNING",
        f"{name}:authorization-server-metadata-cimd did not succeed",
    ]


def test_a_server_that_is_silent_has_not_passed(green, revision):
    written(green, "tools-list", wire_schema_valid="SUCCESS", request="INFO")
    assert scenarios.read(revision, green).problems == ["tools-list:nothing of its own succeeded"]


def test_what_is_only_told_has_not_succeeded(tmp_path):
    scenario = "server-sse-polling"
    ids = dict.fromkeys(SUCCEEDING[scenario], "SUCCESS")
    written(tmp_path, scenario, **ids | {"server-sse-disconnect-resume": "INFO"})
    found = scenarios.read("2025-11-25", tmp_path).scenario(scenario)
    assert found.problems == [f"{scenario}:server-sse-disconnect-resume did not succeed"]
