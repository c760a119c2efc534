"""What alice may not see never comes out: thousands of attempts, in two worlds."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.canaries.attempts import ATTEMPTS
from tests.canaries.campaign import Pipe, campaign, stored
from tests.canaries.exposed import expose
from tests.canaries.world import fill

pytestmark = pytest.mark.django_db
AT_ONCE = 25
TRIES = settings(
    deadline=None, database=None, suppress_health_check=list(HealthCheck), max_examples=9,
    phases=[Phase.generate], report_multiple_bugs=False,
)  # fmt: skip


@pytest.mark.parametrize("aim", ATTEMPTS)
@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
def test_nothing_hidden_comes_out(server, aim, revision):
    alice, exposed = fill(), expose(server)

    @settings(TRIES, max_examples=1 if aim == "lists" else TRIES.max_examples)
    @given(st.lists(ATTEMPTS[aim], min_size=AT_ONCE, max_size=AT_ONCE))
    def tried(attempts):
        campaign(lambda: Pipe(alice, exposed, revision), attempts)

    tried()
    assert not list(stored())
