"""Callers: as the request brought them, then as they are in the database."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import OperationalError, connection

from django_mcp.auth.principal import Auth, Principal
from django_mcp.calls.callers import SessionCaller, load_all
from django_mcp.models import Call, Session
from tests.oauth.tokens import application

pytestmark = pytest.mark.django_db


def asked(loop, caller) -> Principal:
    async def once():
        return await caller()

    return loop.run(once())


def test_the_first_run_is_the_requests_and_every_other_is_loaded_anew(loop, alice):
    principal = Principal(alice, Auth(frozenset({"read"}), key="7"))
    caller = SessionCaller.of(principal)
    assert asked(loop, caller) is principal
    again = asked(loop, caller)
    assert again == principal and again.user is not alice and again.auth is principal.auth
    assert (caller.user, caller.scopes) == (str(alice.pk), ["read"])


def test_nobody_stays_nobody(loop):
    caller = SessionCaller.of(Principal(AnonymousUser()))
    assert caller.user is None and caller.scopes is None
    for _ in range(2):
        assert asked(loop, caller).key == ""


def test_who_is_gone_is_nobody(loop, alice, bob):
    callers = [SessionCaller.of(Principal(user)) for user in (alice, bob)]
    for caller in callers:
        asked(loop, caller)
    alice.delete()
    bob.is_active = False
    bob.save()
    for caller in callers:
        assert not asked(loop, caller).is_authenticated


def test_a_row_names_its_caller(loop, alice):
    principal = Principal(alice, Auth(frozenset({"read", "write"}), key="a:b"))
    session = Session(owner=principal.key)
    call = Call(user=str(alice.pk), scopes=SessionCaller.of(principal).scopes)
    found = asked(loop, SessionCaller.named(session, call))
    assert found.key == principal.key and found.auth.scopes == {"read", "write"}


def test_a_row_of_nobody(loop):
    assert asked(loop, SessionCaller.named(Session(owner=""), Call())).key == ""


@pytest.mark.parametrize("key", ["no number", "", "9" * 30])
def test_a_key_that_is_none_is_nobodys(loop, key):
    assert not asked(loop, SessionCaller(key, None)).is_authenticated


def test_a_database_that_is_away_for_a_moment_makes_nobody_of_no_one(loop, alice):
    caller = SessionCaller.kept(str(alice.pk), ["read"], Principal(alice).key)
    broken = iter([OperationalError("The server is gone.")])

    def away(execute, *statement):
        for error in broken:
            raise error
        return execute(*statement)

    with connection.execute_wrapper(away):
        assert asked(loop, caller).user == alice
    assert next(broken, None) is None


@pytest.fixture
def client(settings):
    """A client, whose tokens the authorization server's verifier knows."""
    verifier = "django_mcp.oauth.verifier.OAuthTokens"
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"VERIFIERS": [verifier]}
    return application()


def kept_of(user, client) -> tuple[Principal, SessionCaller]:
    """As the request brought it, and as a row names it."""
    principal = Principal(user, Auth(frozenset({"mcp"}), client))
    return principal, SessionCaller.kept(str(user.pk), ["mcp"], principal.key)


def test_a_row_names_the_application_of_its_token(loop, alice, client):
    principal, kept = kept_of(alice, client)
    found = asked(loop, kept)
    assert found == principal and found.key == principal.key


def test_whose_application_is_gone_is_nobody(loop, alice, client):
    _, kept = kept_of(alice, client)
    client.delete()
    assert not asked(loop, kept).is_authenticated


def test_an_application_that_no_verifier_tells_is_none(loop, alice, client, settings):
    _, kept = kept_of(alice, client)
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"VERIFIERS": []}
    found = asked(loop, kept)
    assert found.user == alice and found.auth == Auth(frozenset({"mcp"}))


def test_all_are_loaded_with_their_applications(alice, bob, client, django_assert_num_queries):
    (hers, _), (his, _) = kept_of(alice, client), kept_of(bob, client)
    rows = [Call(user=str(one.user.pk), scopes=["mcp"]) for one in (hers, his)]
    for row, one in zip(rows, (hers, his), strict=True):
        row.owner = one.key
    with django_assert_num_queries(2):
        found = load_all(dict(enumerate(rows)))
    assert found == {0: hers, 1: his}
