"""Under every combination of scope and permission nothing comes out that neither lets out."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack, contextmanager
from unittest import mock

import pytest
from django.db import transaction

from django_mcp.auth import scopes
from django_mcp.declarations import permissions as rule
from django_mcp.declarations.declaration import Declaration
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
    """Something came out, or something else than was to be said."""


@pytest.fixture(autouse=True)
def project(settings):
    verifiers = ["tests.canaries.combinations.Tokens"]
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"SCOPES": SCOPES, "VERIFIERS": verifiers}


def allowed(one):
    """The canaries that may come out, and so must."""
    found = {canary for canary, lets_out in ROWS.items() if lets_out(one)}
    for thing in THINGS:
        if thing.is_listed(one):
            found.add(about(thing.name))
        if thing.brings(one):
            found.add(value(thing.name))
    return found


def looked_at(client, alice, server, revision, one):
    """Try everything as this combination. Raises ``Leak``."""
    become(alice, one)
    with transaction.atomic():
        with client(alice, server, revision, one) as connected:
            text, answers = tried(connected)
            if client is CombinedWeb and connected.revision.scope_challenges:
                _challenged(connected, one)
        written = set(Paper.objects.filter(title=WRITTEN).values_list("sealed", flat=True))
        transaction.set_rollback(True)
    found, lets_out = set(CANARY.findall(text)), allowed(one)
    if more := found - lets_out:
        raise Leak(f"{one}: {sorted(more)} came out")
    _written(one, written)
    _answered(one, answers)
    return found


def _written(one, written):
    may = {thing.may_use(one) for thing in THINGS if thing.name in ("update_paper", "retitle")}
    expected = ({False} | ({True} if one.sees_sealed else set())) if may == {True} else set()
    if written != expected:
        raise Leak(f"{one}: papers were written, sealed ones or not: {written}")


def _answered(one, answers):
    """Who may not know of a thing is answered as about one that is not there."""
    for thing in THINGS:
        said = answers[json.dumps([thing.method, thing.params()])]
        if thing.is_listed(one):
            needs = said.partition("it needs the scope ")[2] or said.partition("It needs: ")[2]
            named = set(re.split(r"[.;]", needs)[0].split())
            if named != (set(thing.needs) if thing.is_asked(one) else set()):
                raise Leak(f"{one}: {thing.name} is answered by {said}")
        elif not re.search("Unknown (tool|prompt): |Resource not found", said):
            raise Leak(f"{one}: {thing.name} is answered by {said}")


def _challenged(client, one):
    """Who could be given the scope is told so by the status, before anything is done."""
    for thing in THINGS:
        talk = client.start(thing.method, **thing.params()).wait()
        header = talk.headers.get("www-authenticate", "")
        found = re.search('error="insufficient_scope", scope="([^"]*)"', header)
        named = set(found[1].split()) if found and talk.status == 403 else set()
        if named != (set(thing.needs) if thing.is_asked(one) else set()):
            raise Leak(f"{one}: {thing.name} is answered by {talk}")


SUBSETS = sorted({tuple(sorted(one.permissions)) for one in COMBINATIONS})
# What is always let out of what is exposed has no words of its own in lists.
UNTOLD = {about(name) for name in ("search_paper", "search_author", "update_paper")} | {
    about("model://canaries/author/13")
}
UNSAID = {value(thing.name) for thing in THINGS if thing.name.startswith(("search_", "update_"))}
UNSAID |= {
    value("retitle"),
    value("model://canaries/paper/{}"),
    value("model://canaries/author/13"),
}


@pytest.mark.parametrize("permissions", SUBSETS, ids=lambda some: "+".join(some) or "none")
@pytest.mark.parametrize("client", [CombinedPipe, CombinedWeb])
@pytest.mark.parametrize("revision", [NEWEST, "2025-11-25"])
def test_what_comes_out_is_what_both_let_out(server, client, revision, permissions):
    alice, exposed = fill(), expose(server)
    label()
    for one in COMBINATIONS:
        if one.permissions == set(permissions):
            found = looked_at(client, alice, exposed, revision, one)
            missing = allowed(one) - found - UNTOLD - UNSAID
            assert not missing, f"{one}: an attempt that failed by itself shows nothing"


def test_there_is_every_combination():
    assert (
        len(set(COMBINATIONS))
        == len(COMBINATIONS)
        == 2 ** len(PERMISSIONS) * 2 ** len(SCOPES) * 2 * 2
    )
    for thing in THINGS:  # and each thing is let out by some, and by some is not
        for asked in (thing.may_use, thing.is_listed, thing.is_asked, thing.brings):
            assert {asked(one) for one in COMBINATIONS} == {True, False} or not thing.is_for


# The gates.


def without_token(thing, request):
    return thing._decide(request)


def without_permission_first(thing, request):
    return decide(thing, request) if thing._missing_scopes(request) else ALLOWED


def without_permission_then(thing, request):
    """Of a token that is too narrow, the permission is not checked."""
    if not thing._missing_scopes(request):
        return decide(thing, request)
    return rule.Decision(False, str, rule.grantable(thing, request.principal.auth))


def to_any_token(thing, auth):
    return (scopes.to_ask(auth.scopes, thing._scopes) or ()) if auth else ()


def what_is_lacking_alone(thing, auth):
    found = grantable(thing, auth)
    return tuple(one for one in found if one not in auth.scopes)


def the_first_alone(thing, auth):
    return grantable(thing, auth)[:1]


async def nothing_is_checked(exchange, calls):
    return None


ALLOWED = rule.Decision(True, str)
decide, grantable = rule.decide, rule.grantable
DECIDE = ["django_mcp.calls.execution.decide", "django_mcp.calls.listing.decide",
             "django_mcp.transports.http.security.decide"]  # fmt: skip
GRANTABLE = [
    "django_mcp.declarations.permissions.grantable",
    "django_mcp.transports.http.security.grantable",
]
CHECKED = ["django_mcp.transports.http.stateless.check_scopes"]
GATES = {
    "the token, where rows are fetched": [
        (Declaration, "_is_allowed", lambda self, request: self._decide(request).allowed),
        *((place, without_token) for place in DECIDE),
    ],
    "the token": [(Declaration, "_scopes_missing_in", lambda self, auth: ())],
    "the token, by itself": [(place, without_token) for place in DECIDE],
    "permission": [(Declaration, "_decide_permission", lambda self, request: ALLOWED)],
    "permission of who lacks nothing": [(place, without_permission_first) for place in DECIDE],
    "permission of who lacks a scope": [(place, without_permission_then) for place in DECIDE],
    "only applications ask for more": [(place, to_any_token) for place in GRANTABLE],
    "all that is needed, also what it has": [(place, what_is_lacking_alone) for place in GRANTABLE],
    "all that is needed at once": [(place, the_first_alone) for place in GRANTABLE],
    "a scope covers what it says": [
        ("django_mcp.auth.scopes.covers", lambda granted, needed: True)
    ],
    "a check before anything begins": [(place, nothing_is_checked) for place in CHECKED],
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


# Such as tell the gates apart; the whole is tried above.
TELLING = [
    Combination(frozenset(permissions), frozenset(scopes), sealed, client)
    for permissions in (PERMISSIONS, (), ("view_paper",))
    for scopes in ((), ("look",), ("speak",), ("work", "speak"), ("look", "work"))
    for sealed in (False,)
    for client in (True, False)
]


@pytest.mark.parametrize("gate", GATES)
def test_a_gate_that_is_gone_is_noticed(server, gate):
    alice = fill()
    with removed(gate), pytest.raises(Leak):
        exposed = expose(server)
        for one in TELLING:
            looked_at(CombinedWeb, alice, exposed, NEWEST, one)


def test_with_all_of_them_nothing_is_noticed(server):
    alice, exposed = fill(), expose(server)
    for one in TELLING:
        looked_at(CombinedWeb, alice, exposed, NEWEST, one)
