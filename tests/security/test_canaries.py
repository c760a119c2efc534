"""Canary campaign: thousands of attempts must not reveal what Alice may not see."""

from __future__ import annotations

import os
from itertools import combinations
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import django_mcp as mcp
from django_mcp.auth.principal import Auth, Principal
from django_mcp.models import Token
from tests.canaries.attempts import ATTEMPTS, FEW, mixed, several, size
from tests.canaries.campaign import Leak, campaign
from tests.canaries.clients import Pipe, Web, visited
from tests.canaries.dataset import fill
from tests.canaries.defences import DEFENCES, removed
from tests.canaries.exposed import expose
from tests.storage.rows import given as configured

pytestmark = [pytest.mark.slow, pytest.mark.django_db, pytest.mark.urls("tests.canaries.site")]
REVISIONS = ["2026-07-28", "2025-11-25"]
EXAMPLES = int(os.environ.get("CANARY_EXAMPLES", "6"))  # of 25 attempts, for each aim and revision
ATTEMPTS_PER_EXAMPLE, MIXED_ATTEMPTS = 25, 200
HYPOTHESIS_SETTINGS = settings(
    deadline=None, database=None, suppress_health_check=list(HealthCheck), max_examples=EXAMPLES,
    phases=[Phase.generate], report_multiple_bugs=False,
)  # fmt: skip


@pytest.fixture(autouse=True)
def project(settings):
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "shop.example"]


def number_of_examples(aim):
    """Aims with few attempts try all of them in one example."""
    return 1 if aim in FEW else EXAMPLES


@pytest.mark.parametrize("aim", ATTEMPTS)
@pytest.mark.parametrize("revision", REVISIONS)
def test_hidden_data_is_not_revealed(server, aim, revision):
    alice, exposed, made = fill(), expose(server), []

    @settings(HYPOTHESIS_SETTINGS, max_examples=number_of_examples(aim))
    @given(several(aim, ATTEMPTS_PER_EXAMPLE))
    def tried(attempts):
        campaign(lambda: Pipe(alice, exposed, revision), attempts)
        made.extend(attempts)

    tried()
    assert len(made) >= number_of_examples(aim) * size(aim, ATTEMPTS_PER_EXAMPLE)


def test_campaign_makes_thousands_of_attempts():
    each = (number_of_examples(aim) * size(aim, ATTEMPTS_PER_EXAMPLE) for aim in ATTEMPTS)
    assert len(REVISIONS) * sum(each) >= 5_000


# Tokens with scopes.

SCOPES = {
    "bell": mcp.Scope("Hear", covers=["resource:bell"]),
    "rows": mcp.Scope("Read", covers=["resource:*"]),
    "tools": mcp.Scope("Work", covers=["tool:*"]),
    "prompts": mcp.Scope("Speak", covers=["prompt:*"]),
}
SOME = [("bell", *some) for size in range(4) for some in combinations([*SCOPES][1:], size)]


class PipeWithScopes(Pipe):
    """A client of a token with scopes."""

    def __init__(self, user, server, revision, scopes):
        self.auth = Auth(frozenset(scopes), SimpleNamespace(pk=1))
        super().__init__(user, server, revision)

    async def _principal(self):
        return Principal(self.user, self.auth)


@pytest.mark.parametrize("scopes", SOME, ids="+".join)
@pytest.mark.parametrize("revision", REVISIONS)
def test_hidden_data_is_not_revealed_to_a_token_with_scopes(server, scopes, revision):
    alice, exposed = fill(), expose(server)

    @settings(HYPOTHESIS_SETTINGS, max_examples=1)
    @given(mixed(3 * len(ATTEMPTS)))
    def tried(rounds):
        for attempts in rounds:
            campaign(lambda: PipeWithScopes(alice, exposed, revision, scopes), attempts)

    with configured(SCOPES=SCOPES):
        tried()


VALID_CALLS = {
    "search_paper": {"query": "On a"}, "describe": {"paper": 1}, "compare": {"papers": [1, 2]},
    "works": {"author": 1}, "rename": {"paper": 1, "title": "On z"}, "papers": {"author": 1},
    "update_paper": {"paper": 1, "labels": [1]}, "delete_paper": {"paper": 6}, "paper": {"pk": 1},
    "create_label": {"word": "blue"}, "retitle": {"paper": 1, "author": 2}, "archive": {"pk": 1},
    "cite": {"paper": 1, "others": [2]}, "choose": {"message": "Which?"},
}  # fmt: skip


@pytest.mark.parametrize("client", [Pipe, Web])
@pytest.mark.parametrize("revision", REVISIONS)
def test_visible_data_can_be_read(server, client, revision):
    """Attempts that fail for another reason would prove nothing."""
    with client(fill(), expose(server), revision) as alice:
        alice.answers = {"elicitation/create": lambda params: {
            "action": "accept", "content": {"paper": "1"},
        }}  # fmt: skip
        for tool, arguments in VALID_CALLS.items():
            result = alice.call(tool, **arguments)
            assert not result.get("isError"), result
        assert "describe" in "".join(visited(alice.visitor, server, "", "text/html"))


@pytest.mark.parametrize("revision", REVISIONS)
def test_hidden_data_is_not_revealed_over_http(server, revision):
    alice, exposed = fill(), expose(server)
    token = Token.make(alice, "canaries")[
        1
    ]  # of which cursors are, so it is the same in both worlds

    @settings(HYPOTHESIS_SETTINGS, max_examples=1)
    @given(mixed(MIXED_ATTEMPTS))
    def tried(rounds):
        for attempts in rounds:
            campaign(lambda: Web(alice, exposed, revision, token), attempts)

    # What takes long is answered by a stream, and a machine may be busy in one of the worlds.
    with configured(JSON_GRACE=60):
        tried()


@pytest.mark.parametrize("defence", DEFENCES)
def test_removed_protection_is_detected(server, defence):
    alice, exposed = fill(), expose(server)

    @settings(
        HYPOTHESIS_SETTINGS, max_examples=1, derandomize=True
    )  # a random campaign could miss the leak
    @given(mixed(MIXED_ATTEMPTS))
    def tried(rounds):
        for attempts in rounds:
            campaign(lambda: Pipe(alice, exposed, "2026-07-28"), attempts)

    with removed(defence), pytest.raises(Leak):
        tried()
