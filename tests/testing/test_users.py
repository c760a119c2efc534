"""Whom a client acts as."""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser, Permission, User

from django_mcp.testing.async_client import principal_of


def test_nobody():
    assert not principal_of(None, None).is_authenticated
    assert principal_of(AnonymousUser(), None).auth is None


def test_a_user_is_another_object_of_the_same_values(alice, django_assert_num_queries):
    alice.first_name = "not saved"
    with django_assert_num_queries(0):
        found = principal_of(alice, None).user
    assert found == alice and found is not alice
    assert (found.first_name, found._state.db) == ("not saved", alice._state.db)


def test_permissions_are_looked_up_anew(alice):
    assert alice.has_perm("shop.change_invoice")
    alice.user_permissions.clear()
    assert alice.has_perm("shop.change_invoice")  # Django keeps them on the object
    assert not principal_of(alice, None).user.has_perm("shop.change_invoice")
    alice.user_permissions.add(Permission.objects.get(codename="change_invoice"))
    assert principal_of(alice, None).user.has_perm("shop.change_invoice")


def test_what_was_not_loaded_is_still_deferred(alice):
    user = User.objects.only("username", "is_active").get()
    assert principal_of(user, None).user.get_deferred_fields() == user.get_deferred_fields()


def test_who_may_not_sign_in_is_nobody(alice):
    alice.is_active = False
    assert not principal_of(alice, None).is_authenticated


def test_scopes(alice):
    assert principal_of(alice, ["a", "b"]).auth.scopes == {"a", "b"}
    assert principal_of(alice, []).auth.scopes == frozenset()
    assert principal_of(alice, None).auth is None
