"""What alice may not see never comes out: thousands of attempts, in two worlds."""

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
AT_ONCE, WITHIN = 25, 200
TRIES = settings(
    deadline=None, database=None, suppress_health_check=list(HealthCheck), max_examples=EXAMPLES,
    phases=[Phase.generate], report_multiple_bugs=False,
)  # fmt: skip


@pytest.fixture(autouse=True)
def project(settings):
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "shop.example"]


def examples(aim):
    """All there is to try is tried at once."""
    return 1 if aim in FEW else EXAMPLES


@pytest.mark.parametrize("aim", ATTEMPTS)
@pytest.mark.parametrize("revision", REVISIONS)
def test_nothing_hidden_comes_out(server, aim, revision):
    alice, exposed, made = fill(), expose(server), []

    @settings(TRIES, max_examples=examples(aim))
    @given(several(aim, AT_ONCE))
    def tried(attempts):
        campaign(lambda: Pipe(alice, exposed, revision), attempts)
        made.extend(attempts)

    tried()
    assert len(made) >= examples(aim) * size(aim, AT_ONCE)


def test_a_run_tries_thousands():
    each = (examples(aim) * size(aim, AT_ONCE) for aim in ATTEMPTS)
    assert len(REVISIONS) * sum(each) >= 5_000


# A token that is good for some of it: whatever that is, what is hidden stays so.

SCOPES = {
    "bell": mcp.Scope("Hear", covers=["resource:bell"]),
    "rows": mcp.Scope("Read", covers=["resource:*"]),
    "tools": mcp.Scope("Work", covers=["tool:*"]),
    "prompts": mcp.Scope("Speak", covers=["prompt:*"]),
}
SOME = [("bell", *some) for size in range(4) for some in combinations([*SCOPES][1:], size)]


class Narrowed(Pipe):
    """A client of a token with scopes."""

    def __init__(self, user, server, revision, scopes):
        self.auth = Auth(frozenset(scopes), SimpleNamespace(pk=1))
        super().__init__(user, server, revision)

    async def _principal(self):
        return Principal(self.user, self.auth)


@pytest.mark.parametrize("scopes", SOME, ids="+".join)
@pytest.mark.parametrize("revision", REVISIONS)
def test_nothing_hidden_comes_out_of_a_narrowed_token(server, scopes, revision):
    alice, exposed = fill(), expose(server)

    @settings(TRIES, max_examples=1)
    @given(mixed(3 * len(ATTEMPTS)))
    def tried(rounds):
        for attempts in rounds:
            campaign(lambda: Narrowed(alice, exposed, revision, scopes), attempts)

    with configured(SCOPES=SCOPES):
        tried()


WORKS = {
    "search_paper": {"query": "On a"}, "describe": {"paper": 1}, "compare": {"papers": [1, 2]},
    "works": {"author": 1}, "rename": {"paper": 1, "title": "On z"}, "papers": {"author": 1},
    "update_paper": {"paper": 1, "labels": [1]}, "delete_paper": {"paper": 6}, "paper": {"pk": 1},
    "create_label": {"word": "blue"}, "retitle": {"paper": 1, "author": 2}, "archive": {"pk": 1},
    "cite": {"paper": 1, "others": [2]}, "choose": {"message": "Which?"},
}  # fmt: skip


@pytest.mark.parametrize("client", [Pipe, Web])
@pytest.mark.parametrize("revision", REVISIONS)
def test_what_is_not_hidden_can_be_had(server, client, revision):
    """An attempt that failed by a mistake of its own would show nothing."""
    with client(fill(), expose(server), revision) as alice:
        alice.answers = {"elicitation/create": lambda params: {
            "action": "accept", "content": {"paper": "1"},
        }}  # fmt: skip
        for tool, arguments in WORKS.items():
            result = alice.call(tool, **arguments)
            assert not result.get("isError"), result
        assert "describe" in "".join(visited(alice.visitor, server, "", "text/html"))


@pytest.mark.parametrize("revision", REVISIONS)
def test_nothing_hidden_comes_out_over_http(server, revision):
    alice, exposed = fill(), expose(server)
    token = Token.make(alice, "canaries")[
        1
    ]  # of which cursors are, so it is the same in both worlds

    @settings(TRIES, max_examples=1)
    @given(mixed(WITHIN))
    def tried(rounds):
        for attempts in rounds:
            campaign(lambda: Web(alice, exposed, revision, token), attempts)

    # What takes long is answered by a stream, and a machine may be busy in one of the worlds.
    with configured(JSON_GRACE=60):
        tried()


@pytest.mark.parametrize("gate", DEFENCES)
def test_a_gate_that_is_gone_is_noticed(server, gate):
    alice, exposed = fill(), expose(server)

    @settings(TRIES, max_examples=1, derandomize=True)  # the odds of a miss are small, not none
    @given(mixed(WITHIN))
    def tried(rounds):
        for attempts in rounds:
            campaign(lambda: Pipe(alice, exposed, "2026-07-28"), attempts)

    with removed(gate), pytest.raises(Leak):
        tried()
