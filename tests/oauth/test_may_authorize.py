"""Which users may authorize clients: active users, and those whom MAY_AUTHORIZE allows."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser, UserManager
from django.test import override_settings

from django_mcp.declarations.server import default_server
from django_mcp.oauth.scope_grants import may_authorize, may_sign_in, may_use

from .conftest import MCP


def allow_alice_on_default_server(user, server):
    return user.username == "alice" and server is default_server


@pytest.fixture
def may_authorize_setting():
    rule = f"{__name__}.allow_alice_on_default_server"
    with override_settings(DJANGO_MCP={**MCP, "OAUTH": {"MAY_AUTHORIZE": rule}}):
        yield


def test_active_user_may_authorize(alice):
    assert may_authorize(alice, [default_server])
    alice.is_active = False
    assert not may_authorize(alice, [default_server])


@pytest.mark.parametrize("user", [None, AnonymousUser()])
def test_anonymous_user_may_not_authorize(user):
    assert not may_sign_in(user) and not may_authorize(user, [default_server])


@pytest.mark.usefixtures("may_authorize_setting")
def test_setting_decides_by_user_and_server(alice):
    bob = get_user_model().objects.create_user("bob")
    assert may_authorize(alice, [default_server]) and not may_authorize(bob, [default_server])
    assert may_use(alice, ["https://shop.example/mcp"])
    assert not may_use(bob, ["https://shop.example/mcp"])


@pytest.mark.usefixtures("may_authorize_setting")
def test_setting_cannot_allow_inactive_users(alice):
    alice.is_active = False
    assert not may_authorize(alice, [default_server])


@pytest.mark.usefixtures("may_authorize_setting")
def test_setting_does_not_apply_to_other_apis(db):
    bob = get_user_model().objects.create_user("bob")
    assert may_use(bob, ["https://shop.example/api"]) and may_use(bob, [])


def test_user_hidden_by_the_default_manager_may_not_sign_in(alice, monkeypatch):
    class Seen(UserManager):
        def get_queryset(self):
            return super().get_queryset().exclude(username="alice")

    manager = Seen()
    manager.model = get_user_model()
    monkeypatch.setattr(type(alice)._meta, "default_manager", manager)
    assert not may_sign_in(alice)


def test_default_rule_makes_no_query(alice, django_assert_num_queries):
    with django_assert_num_queries(0):
        assert may_authorize(alice, [default_server])
