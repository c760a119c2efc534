"""Every combination of scopes and permissions: nothing is revealed that one of them forbids."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack, contextmanager
from unittest import mock

import pytest
from django.db import transaction

from django_mcp.auth import scopes
from django_mcp.declarations import permissions as rule
from django_mcp.declarations.declaration import Declaration, decide, grantable
from django_mcp.declarations.model_resources import ModelResource
from django_mcp.declarations.prompts import Prompt
from django_mcp.declarations.resources import Resource
from django_mcp.declarations.tools import Tool
from tests.canaries.combinations import (
    COMBINATIONS,
    PERMISSIONS,
    ROWS,
    SCOPES,
    THINGS,
    WRITTEN,
    Combination,
    CombinedPipe,
    CombinedWeb,
    about,
    become,
    expose,
    fill,
    label,
    tried,
    value,
)
from tests.canaries.models import Paper

pytestmark = [pytest.mark.slow, pytest.mark.django_db]
CANARY = re.compile(r"kanary-[\w.-]+")
NEWEST = "2026-07-28"


class Leak(AssertionError):
    """Something was revealed, or the response is not the expected one."""


@pytest.fixture(autouse=True)
def project(settings):
    verifiers = ["tests.canaries.combinations.Tokens"]
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"SCOPES": SCOPES, "VERIFIERS": verifiers}


def expected_canaries(one):
    """Return the canaries that this combination must get."""
    found = {canary for canary, lets_out in ROWS.items() if lets_out(one)}
    for thing in THINGS:
        if thing.is_listed(one):
            found.add(about(thing.name))
        if thing.brings(one):
            found.add(value(thing.name))
    return found


def try_everything(client, alice, server, revision, one):
    """Try everything as this combination. Raises ``Leak``."""
    become(alice, one)
    with transaction.atomic():
        with client(alice, server, revision, one) as connected:
            text, answers = tried(connected)
            if client is CombinedWeb and connected.revision.scope_challenges:
                _check_challenges(connected, one)
        written = set(Paper.objects.filter(title=WRITTEN).values_list("sealed", flat=True))
        transaction.set_rollback(True)
    found, lets_out = set(CANARY.findall(text)), expected_canaries(one)
    if more := found - lets_out:
        raise Leak(f"{one}: {sorted(more)} came out")
    _written(one, written)
    _check_answers(one, answers)
    return found


def _written(one, written):
    may = {thing.may_use(one) for thing in THINGS if thing.name in ("update_paper", "retitle")}
    expected = ({False} | ({True} if one.sees_sealed else set())) if may == {True} else set()
    if written != expected:
        raise Leak(f"{one}: papers were written, sealed ones or not: {written}")


def _check_answers(one, answers):
    """A declaration that the caller may not know of must look like a missing one."""
    for thing in THINGS:
        said = answers[json.dumps([thing.method, thing.params()])]
        if thing.is_listed(one):
            needs = said.partition("it needs the scope ")[2] or said.partition("It needs: ")[2]
            named = set(re.split(r"[.;]", needs)[0].split())
            if named != (set(thing.needs) if thing.is_asked(one) else set()):
                raise Leak(f"{one}: {thing.name} is answered by {said}")
        elif not re.search("Unknown (tool|prompt): |Resource not found", said):
            raise Leak(f"{one}: {thing.name} is answered by {said}")


def _check_challenges(client, one):
    """If the token could get the scope, the status says so before anything is executed."""
    for thing in THINGS:
        exchange = client.start(thing.method, **thing.params()).wait()
        header = exchange.headers.get("www-authenticate", "")
        found = re.search('error="insufficient_scope", scope="([^"]*)"', header)
        named = set(found[1].split()) if found and exchange.status == 403 else set()
        if named != (set(thing.needs) if thing.is_asked(one) else set()):
            raise Leak(f"{one}: {thing.name} is answered by {exchange}")


SUBSETS = sorted({tuple(sorted(one.permissions)) for one in COMBINATIONS})
# Declarations that have no description of their own.
NOT_IN_LISTS = {about(name) for name in ("search_paper", "search_author", "update_paper")} | {
    about("model://canaries/author/13")
}
NOT_IN_RESULTS = {
    value(thing.name) for thing in THINGS if thing.name.startswith(("search_", "update_"))
}
NOT_IN_RESULTS |= {
    value("retitle"),
    value("model://canaries/paper/{}"),
    value("model://canaries/author/13"),
}


@pytest.mark.parametrize("permissions", SUBSETS, ids=lambda some: "+".join(some) or "none")
@pytest.mark.parametrize("client", [CombinedPipe, CombinedWeb])
@pytest.mark.parametrize("revision", [NEWEST, "2025-11-25"])
def test_each_combination_gets_exactly_what_it_may_see(server, client, revision, permissions):
    alice, exposed = fill(), expose(server)
    label()
    for one in COMBINATIONS:
        if one.permissions == set(permissions):
            found = try_everything(client, alice, exposed, revision, one)
            missing = expected_canaries(one) - found - NOT_IN_LISTS - NOT_IN_RESULTS
            assert not missing, f"{one}: an attempt that failed by itself shows nothing"


def test_all_combinations_are_tested():
    assert (
        len(set(COMBINATIONS))
        == len(COMBINATIONS)
        == 2 ** len(PERMISSIONS) * 2 ** len(SCOPES) * 2 * 2
    )
    for thing in THINGS:  # and each thing is let out by some, and by some is not
        for asked in (thing.may_use, thing.is_listed, thing.is_asked, thing.brings):
            assert {asked(one) for one in COMBINATIONS} == {True, False} or not thing.is_for


# Removed protections.


def skip_token(thing, request):
    return thing._decide(request)


def skip_permission_of_broad_tokens(thing, request):
    return decide(thing, request) if thing._missing_scopes(request.auth) else ALLOWED


def skip_permission_of_narrow_tokens(thing, request):
    """Do not check the permission if the token lacks a scope."""
    if not thing._missing_scopes(request.auth):
        return decide(thing, request)
    return rule.Decision(False, str, grantable(thing, request.principal.auth))


def grant_to_any_token(thing, auth):
    return (scopes.to_ask(auth.scopes, thing._scopes) or ()) if auth else ()


def only_missing_scopes(thing, auth):
    found = grantable(thing, auth)
    return tuple(one for one in found if one not in auth.scopes)


def only_the_first_scope(thing, auth):
    return grantable(thing, auth)[:1]


async def check_nothing(exchange, calls):
    return None


ALLOWED = rule.Decision(True, str)
DECIDE = ["django_mcp.calls.execution.decide", "django_mcp.calls.listing.decide",
             "django_mcp.transports.http.security.decide"]  # fmt: skip
GRANTABLE = [
    "django_mcp.declarations.declaration.grantable",
    "django_mcp.transports.http.security.grantable",
]
CHECKED = ["django_mcp.transports.http.stateless.check_scopes"]
GATES = {
    "the token, where rows are fetched": [
        (Declaration, "_is_allowed", lambda self, request: self._decide(request).allowed),
        *((place, skip_token) for place in DECIDE),
    ],
    "the token": [(Declaration, "_missing_scopes", lambda self, auth: ())],
    "the token, by itself": [(place, skip_token) for place in DECIDE],
    "permission": [(Declaration, "_decide_permission", lambda self, request: ALLOWED)],
    "permission of who lacks nothing": [(place,
    skip_permission_of_broad_tokens) for place in DECIDE],
    "permission of who lacks a scope": [(place,
    skip_permission_of_narrow_tokens) for place in DECIDE],
    "only applications ask for more": [(place, grant_to_any_token) for place in GRANTABLE],
    "all that is needed, also what it has": [(place, only_missing_scopes) for place in GRANTABLE],
    "all that is needed at once": [(place, only_the_first_scope) for place in GRANTABLE],
    "a scope covers what it says": [
        ("django_mcp.auth.scopes.lacking", lambda granted, needed: ())
    ],
    "a check before anything begins": [(place, check_nothing) for place in CHECKED],
    "a check when it is done": [("django_mcp.calls.execution.check", lambda *given: None)],
    "what tools rest on": [(Tool, "_depends_on", ())],
    "what prompts rest on": [(Prompt, "_depends_on", ())],
    "what resources rest on": [(Resource, "_depends_on", ())],
    "object permission": [(ModelResource, "_permitted", lambda self, request, rows: iter(rows))],
}  # fmt: skip


@contextmanager
def removed(gate):
    with ExitStack() as stack:
        for place, *patch in GATES[gate]:
            patched = mock.patch if isinstance(place, str) else mock.patch.object
            stack.enter_context(patched(place, *patch))
        yield


# Enough to detect each removed protection.
SAMPLE_COMBINATIONS = [
    Combination(frozenset(permissions), frozenset(scopes), sealed, client)
    for permissions in (PERMISSIONS, (), ("view_paper",))
    for scopes in ((), ("look",), ("speak",), ("work", "speak"), ("look", "work"))
    for sealed in (False,)
    for client in (True, False)
]


@pytest.mark.parametrize("gate", GATES)
def test_removed_protection_is_detected(server, gate):
    alice = fill()
    with removed(gate), pytest.raises(Leak):
        exposed = expose(server)
        for one in SAMPLE_COMBINATIONS:
            try_everything(CombinedWeb, alice, exposed, NEWEST, one)


def test_nothing_is_detected_with_all_protections(server):
    alice, exposed = fill(), expose(server)
    for one in SAMPLE_COMBINATIONS:
        try_everything(CombinedWeb, alice, exposed, NEWEST, one)
