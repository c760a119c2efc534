"""A caller is loaded from the database again for each run of a call."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import OperationalError, connection

from django_mcp.auth.principal import Auth, Principal
from django_mcp.calls.callers import (
    SessionCaller,
    load_principals,
    reload_principal,
    reload_valid_principals,
)
from django_mcp.models import Call, Session
from tests.oauth.tokens import application

pytestmark = pytest.mark.django_db


def asked(loop, caller) -> Principal:
    async def once():
        return await caller()

    return loop.run(once())


def test_first_run_uses_the_principal_of_the_request_and_later_runs_reload_it(loop, alice):
    principal = Principal(alice, Auth(frozenset({"read"}), key="7"))
    caller = SessionCaller.from_principal(principal)
    assert asked(loop, caller) is principal
    again = asked(loop, caller)
    assert again == principal and again.user is not alice and again.auth is principal.auth
    assert (caller.user, caller.scopes) == (str(alice.pk), ["read"])


def test_anonymous_caller_stays_anonymous(loop):
    caller = SessionCaller.from_principal(Principal(AnonymousUser()))
    assert caller.user is None and caller.scopes is None
    for _ in range(2):
        assert asked(loop, caller).key == ""


def test_deleted_or_inactive_user_is_treated_as_anonymous(loop, alice, bob):
    callers = [SessionCaller.from_principal(Principal(user)) for user in (alice, bob)]
    for caller in callers:
        asked(loop, caller)
    alice.delete()
    bob.is_active = False
    bob.save()
    for caller in callers:
        assert not asked(loop, caller).is_authenticated


def test_stored_call_restores_its_principal(loop, alice):
    principal = Principal(alice, Auth(frozenset({"read", "write"}), key="a:b"))
    session = Session(owner=principal.key)
    call = Call(user=str(alice.pk), scopes=SessionCaller.from_principal(principal).scopes)
    found = asked(loop, SessionCaller.from_call(session, call))
    assert found.key == principal.key and found.auth.scopes == {"read", "write"}


def test_stored_call_without_owner_is_anonymous(loop):
    assert asked(loop, SessionCaller.from_call(Session(owner=""), Call())).key == ""


@pytest.mark.parametrize("key", ["no number", "", "9" * 30])
def test_invalid_principal_key_is_anonymous(loop, key):
    assert not asked(loop, SessionCaller(key, None)).is_authenticated


def test_database_outage_does_not_make_the_caller_anonymous(loop, alice):
    caller = SessionCaller.from_stored(str(alice.pk), ["read"], Principal(alice).key)
    broken = iter([OperationalError("The server is gone.")])

    def away(execute, *statement):
        for error in broken:
            raise error
        return execute(*statement)

    with connection.execute_wrapper(away):
        assert asked(loop, caller).user == alice
    assert next(broken, None) is None


def test_reloaded_principal_differs_only_in_its_user_object(loop, alice):
    before = Principal(alice, Auth(frozenset({"read"}), key="7"), impersonator="9")
    found, unknown = reload_valid_principals({"call": before})
    for after in (found["call"], loop.run(reload_principal(before))):
        assert after == before and after.impersonator == "9" and after.user is not alice


@pytest.fixture
def client(settings):
    """A client, whose tokens the authorization server's verifier knows."""
    verifier = "django_mcp.oauth.verifier.OAuthTokens"
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"VERIFIERS": [verifier]}
    return application()


def kept_of(user, client) -> tuple[Principal, SessionCaller]:
    """As the request brought it, and as a row names it."""
    principal = Principal(user, Auth(frozenset({"mcp"}), client))
    return principal, SessionCaller.from_stored(str(user.pk), ["mcp"], principal.key)


def test_stored_call_restores_the_application_of_its_token(loop, alice, client):
    principal, kept = kept_of(alice, client)
    found = asked(loop, kept)
    assert found == principal and found.key == principal.key


def test_caller_of_a_deleted_application_is_anonymous(loop, alice, client):
    _, kept = kept_of(alice, client)
    client.delete()
    assert not asked(loop, kept).is_authenticated


def test_application_without_a_verifier_is_not_restored(loop, alice, client, settings):
    _, kept = kept_of(alice, client)
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"VERIFIERS": []}
    found = asked(loop, kept)
    assert found.user == alice and found.auth == Auth(frozenset({"mcp"}))


def test_all_callers_are_loaded_with_applications_by_two_queries(
    alice, bob, client, django_assert_num_queries
):
    (hers, _), (his, _) = kept_of(alice, client), kept_of(bob, client)
    rows = [Call(user=str(one.user.pk), scopes=["mcp"]) for one in (hers, his)]
    for row, one in zip(rows, (hers, his), strict=True):
        row.owner = one.key
    with django_assert_num_queries(2):
        found = load_principals(dict(enumerate(rows)))
    assert found == {0: hers, 1: his}
