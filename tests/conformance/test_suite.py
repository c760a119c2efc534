"""The official conformance suite, a test for each scenario that is required of us.

The suite runs once, against the server in a process of its own.
"""

from __future__ import annotations

import os

import pytest

from tools import conformance, conformance_suite
from tools.conformance_results import AUTHORIZATION, REQUIRED, SetResult

from .conftest import verdicts_to_tell


@pytest.fixture(scope="session")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SetResult]:
    """What came of each set; the run is skipped, or failed where required, if it cannot be."""
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
def test_scenario(verdicts, wanted, scenario):
    assert verdicts[wanted].scenario(scenario).problems == []


def test_no_scenario_for_an_authorization_server_is_left_out(verdicts):
    assert verdicts[AUTHORIZATION].others == []
