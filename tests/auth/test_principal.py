"""Who is calling: a value, loaded afresh for every call; who is not active is nobody."""

from types import SimpleNamespace

import pytest
from django.contrib.auth.models import AnonymousUser, User
from hypothesis import given
from hypothesis import strategies as st

import django_mcp as mcp
from django_mcp.auth.principal import Auth, Principal, anonymous


def user(pk=1, **attributes):
    return User(pk=pk, username="alice", **attributes)


def test_a_user():
    principal = Principal(user())
    assert principal.is_authenticated and principal.auth is None and principal.key == "1::"


def test_nobody():
    principal = anonymous()
    assert isinstance(principal.user, AnonymousUser) and not principal.is_authenticated
    assert principal.key == ""


def test_who_is_not_active_is_nobody():
    principal = Principal(user(is_active=False))
    assert principal.is_authenticated is False and principal.key == ""


def test_a_token():
    auth = Auth(frozenset({"read"}), SimpleNamespace(pk=7))
    principal = Principal(user(), auth)
    assert principal.key == "1:7:" and principal.auth.scopes == {"read"}
    assert Principal(user(), Auth()).key == "1::" and Auth().application is None
    assert Principal(user(), Auth(key="7")).key == "1::7" and Auth().expires is None


def test_a_key_is_one_principals():
    application = SimpleNamespace(pk=1)
    principals = [
        anonymous(), Principal(user(1)), Principal(user(2)), Principal(user(11)),
        Principal(user(1), Auth(application=application)),
        Principal(user(1), Auth(key="1")), Principal(user(1), Auth(key="2")),
        Principal(user(2), Auth(key="1")),
        Principal(user(1), Auth(application=application, key="1")),
        Principal(AnonymousUser(), Auth(application=application)),
        Principal(AnonymousUser(), Auth(key="1")),
    ]  # fmt: skip
    assert len({principal.key for principal in principals}) == len(principals)


Names = st.text(st.sampled_from(":%a1é/ "), max_size=3)


@given(st.lists(st.tuples(Names, Names, Names), min_size=2, max_size=2, unique=True))
def test_a_key_is_one_principals_whatever_keys_are_made_of(pair):
    """A user may have the key "1:7", as another with the key 1 has an application 7."""
    keys = {
        Principal(user(pk), Auth(application=SimpleNamespace(pk=application), key=key)).key
        for pk, application, key in pair
    }
    assert len(keys) == 2


def test_a_user_without_a_name_is_still_somebody():
    assert Principal(user("")).key != anonymous().key


def test_a_key_fits_a_column_and_is_still_one_principals():
    principals = [Principal(user("é" * 200 + end)) for end in ("a", "b")]
    keys = {principal.key for principal in principals}
    assert len(keys) == 2 and all(len(key) <= 255 and key.isascii() for key in keys)
    assert len(Principal(user("a" * 253)).key) == 255 < len("a" * 254 + "::")
    assert len(Principal(user("a" * 254)).key) == 64


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
