"""The official conformance suite, with a test for each required scenario.

The suite runs once, against the server in its own process.
"""

from __future__ import annotations

import os

import pytest

from tools import conformance, conformance_suite
from tools.conformance_results import AUTHORIZATION, REQUIRED, SetResult

from .conftest import verdicts_to_tell


@pytest.fixture(scope="session")
def results_by_set(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SetResult]:
    """Return the results of each set. Skip, or fail if required, if the suite cannot run."""
    if why := conformance_suite.why_absent():
        absent = pytest.fail if os.environ.get("TESTS_REQUIRED") else pytest.skip
        absent(why)
    conformance_suite.install()
    results = tmp_path_factory.mktemp("results")
    with conformance.served(results) as url:
        found = {one.name: one for one in conformance.run(list(REQUIRED), url, results)}
    verdicts_to_tell.extend(found.values())
    return found


@pytest.mark.parametrize(
    ("wanted", "scenario"),
    [(wanted, name) for wanted, names in REQUIRED.items() for name in names],
)
def test_scenario(results_by_set, wanted, scenario):
    assert results_by_set[wanted].scenario(scenario).problems == []


def test_every_authorization_server_scenario_is_listed(results_by_set):
    assert results_by_set[AUTHORIZATION].others == []
