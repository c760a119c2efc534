"""Whom clients may act for."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser, UserManager
from django.test import override_settings

from django_mcp.declarations.server import default_server
from django_mcp.oauth.scope_grants import may_authorize, may_sign_in, may_use

from .conftest import MCP


def the_default_for_alice(user, server):
    return user.username == "alice" and server is default_server


@pytest.fixture
def the_projects_rule():
    rule = f"{__name__}.the_default_for_alice"
    with override_settings(DJANGO_MCP={**MCP, "OAUTH": {"MAY_AUTHORIZE": rule}}):
        yield


def test_whoever_is_active_may(alice):
    assert may_authorize(alice, [default_server])
    alice.is_active = False
    assert not may_authorize(alice, [default_server])


@pytest.mark.parametrize("user", [None, AnonymousUser()])
def test_nobody_may_not(user):
    assert not may_sign_in(user) and not may_authorize(user, [default_server])


@pytest.mark.usefixtures("the_projects_rule")
def test_the_project_says_who_may_where(alice):
    bob = get_user_model().objects.create_user("bob")
    assert may_authorize(alice, [default_server]) and not may_authorize(bob, [default_server])
    assert may_use(alice, ["https://shop.example/mcp"])
    assert not may_use(bob, ["https://shop.example/mcp"])


@pytest.mark.usefixtures("the_projects_rule")
def test_the_project_cannot_let_in_who_may_not_sign_in(alice):
    alice.is_active = False
    assert not may_authorize(alice, [default_server])


@pytest.mark.usefixtures("the_projects_rule")
def test_other_apis_are_not_ours_to_judge(db):
    bob = get_user_model().objects.create_user("bob")
    assert may_use(bob, ["https://shop.example/api"]) and may_use(bob, [])


def test_whom_the_default_manager_hides_may_not(alice, monkeypatch):
    class Seen(UserManager):
        def get_queryset(self):
            return super().get_queryset().exclude(username="alice")

    manager = Seen()
    manager.model = get_user_model()
    monkeypatch.setattr(type(alice)._meta, "default_manager", manager)
    assert not may_sign_in(alice)


def test_it_costs_no_query(alice, django_assert_num_queries):
    with django_assert_num_queries(0):
        assert may_authorize(alice, [default_server])
