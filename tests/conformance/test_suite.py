"""The official conformance suite, a test for each scenario that is required of us.

The suite runs once, against the server in a process of its own.
"""

from __future__ import annotations

import os

import pytest

from tools import conformance, suite
from tools.scenarios import REQUIRED, Verdict

from .conftest import verdicts_to_tell


@pytest.fixture(scope="session")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """What came of each revision; the run is skipped, or failed where required, if it cannot be."""
    if why := suite.why_absent():
        absent = pytest.fail if os.environ.get("TESTS_REQUIRED") else pytest.skip
        absent(why)
    suite.install()
    results = tmp_path_factory.mktemp("results")
    with conformance.served(results) as url:
        found = {one.revision: one for one in conformance.run(list(REQUIRED), url, results)}
    verdicts_to_tell.extend(found.values())
    return found


@pytest.mark.parametrize(
    ("revision", "scenario"),
    [(revision, name) for revision, names in REQUIRED.items() for name in names],
)
def test_scenario(verdicts, revision, scenario):
    assert verdicts[revision].scenario(scenario).problems == []
