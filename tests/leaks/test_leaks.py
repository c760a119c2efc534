"""Hidden data changes no response, in schemas made at random. Removed protections are detected."""

from __future__ import annotations

import os
import random

import pytest

from .campaign import Campaign, Leak
from .protections import PROTECTIONS, RULES_OF, removed, unavailable

pytestmark = pytest.mark.django_db
ATTEMPTS = int(os.environ.get("LEAK_ATTEMPTS", "40"))  # for each bridge and seed
MORE_ATTEMPTS, ATTEMPTS_AT_ONCE = 700, 50


@pytest.fixture(autouse=True)
def _bridge_is_available(request, db):
    given = request.node.callspec.params
    if reason := unavailable(given["bridge"], given.get("protection", "")):
        pytest.skip(reason)


@pytest.mark.parametrize("bridge", RULES_OF)
def test_hidden_data_is_not_revealed(schema, servers, alice, bridge):
    campaign = Campaign(schema, servers, bridge, alice)
    campaign.run(campaign.attempts(random.Random(schema.seed), ATTEMPTS))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("bridge", RULES_OF)
def test_hidden_data_is_not_revealed_by_thousands_of_attempts(schema, servers, alice, bridge):
    campaign = Campaign(schema, servers, bridge, alice)
    campaign.run(campaign.attempts(random.Random(schema.seed + 1), MORE_ATTEMPTS))


@pytest.mark.parametrize("bridge", RULES_OF)
def test_visible_rows_are_found(schema, servers, alice, bridge):
    """If even visible rows were missing, the other tests would prove nothing."""
    found = Campaign(schema, servers, bridge, alice).visible_rows()
    assert found == {table.name: table.visible_keys for table in schema.tables}


# Only the fixed seed: on it, each removed protection is known to be detected.
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("schema", ["fixed"], indirect=True)
@pytest.mark.parametrize(
    ("bridge", "protection"), PROTECTIONS, ids=[": ".join(one) for one in PROTECTIONS]
)
def test_removed_protection_is_detected(schema, servers, alice, bridge, protection):
    with removed(bridge, protection), pytest.raises(Leak):
        campaign = Campaign(schema, servers, bridge, alice)
        attempts = campaign.every()
        random.Random(schema.seed).shuffle(attempts)
        for start in range(0, len(attempts), ATTEMPTS_AT_ONCE):
            campaign.run(attempts[start : start + ATTEMPTS_AT_ONCE])
