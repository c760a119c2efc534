"""Who is calling: a value, loaded afresh for every call; who is not active is nobody."""

from types import SimpleNamespace

import pytest
from django.contrib.auth.models import AnonymousUser, User

import django_mcp as mcp
from django_mcp.principal import Auth, Principal, anonymous


def user(pk=1, **attributes):
    return User(pk=pk, username="alice", **attributes)


def test_a_user():
    principal = Principal(user())
    assert principal.is_authenticated and principal.auth is None and principal.key == "1:"


def test_nobody():
    principal = anonymous()
    assert isinstance(principal.user, AnonymousUser) and not principal.is_authenticated
    assert principal.key == ":"


def test_who_is_not_active_is_nobody():
    principal = Principal(user(is_active=False))
    assert principal.is_authenticated is False and principal.key == ":"


def test_a_token():
    auth = Auth(frozenset({"read"}), SimpleNamespace(pk=7))
    principal = Principal(user(), auth)
    assert principal.key == "1:7" and principal.auth.scopes == {"read"}
    assert Principal(user(), Auth()).key == "1:" and Auth().application is None


def test_a_key_is_one_principals():
    application = SimpleNamespace(pk=1)
    principals = [
        anonymous(), Principal(user(1)), Principal(user(2)), Principal(user(11)),
        Principal(user(1), Auth(application=application)),
        Principal(AnonymousUser(), Auth(application=application)),
    ]  # fmt: skip
    assert len({principal.key for principal in principals}) == len(principals)


def test_it_is_a_value():
    principal = Principal(user())
    assert principal == Principal(user()) != Principal(user(2))
    with pytest.raises(AttributeError):
        principal.user = user(2)


def test_what_verifies_tokens():
    class Verifier:
        async def verify(self, token, server):
            return None

    assert isinstance(Verifier(), mcp.TokenVerifier) and not isinstance(object(), mcp.TokenVerifier)
