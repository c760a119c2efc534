"""The visitor of the server page: user, login URL and token command."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.test import RequestFactory
from django.urls import clear_script_prefix, set_script_prefix
from django.utils.functional import SimpleLazyObject

from django_mcp.declarations.server import server_named
from django_mcp.web import page


@pytest.fixture
def request_(rf: RequestFactory):
    return rf.get("/mcp")


def test_nested_lazy_user_is_unwrapped(request_):
    user = User(username="alice", is_active=True)
    request_.user = SimpleLazyObject(lambda: SimpleLazyObject(lambda: user))
    assert page.principal(request_).user is user


@pytest.mark.parametrize("user", [AnonymousUser(), User(is_active=False)])
def test_missing_or_inactive_user_is_anonymous(request_, user):
    assert not page.principal(request_).is_authenticated
    request_.user = user
    assert isinstance(page.principal(request_).user, AnonymousUser)


@pytest.mark.parametrize(
    ("path", "next_"),
    [
        ("/mcp", "/mcp"), ("//evil.example/mcp", "/evil.example/mcp"), ("/a b?c", "/a%2520b%253Fc"),
        ("/m\xe9", "/m%25C3%25A9"),
    ],
)  # fmt: skip
def test_next_parameter_is_a_path_of_this_site(request_, settings, path, next_):
    settings.LOGIN_URL = "/in/"
    request_.path_info = path
    assert page.login_url(request_) == f"/in/?next={next_}"


def test_login_url_below_a_script_prefix(request_, settings):
    settings.ROOT_URLCONF, settings.LOGIN_URL = "tests.web.urls", "sign_in"
    set_script_prefix("/app")
    try:
        assert page.login_url(request_) == "/app/sign-in/?next=/app/mcp"
    finally:
        clear_script_prefix()


def test_staff_with_the_permission_get_a_link_to_the_inspector(db, settings):
    settings.ROOT_URLCONF = "tests.admin.urls"
    root = User(is_superuser=True, is_staff=True, is_active=True)
    link = page.inspector_url(root, server_named("default"))
    assert link == "/admin/django_mcp/inspector/?server=default"
    assert page.inspector_url(User(is_superuser=True), server_named("default")) is None
    other = User.objects.create_user("sam", is_staff=True)
    assert page.inspector_url(other, server_named("default")) is None
    settings.ROOT_URLCONF = "tests.web.urls"
    assert page.inspector_url(root, server_named("default")) is None


def test_token_command_quotes_the_username():
    user = User(username="o'neil; ls")
    assert " ".join(page.token_command(user)).split("--user ")[1] == (
        "'o'\"'\"'neil; ls' --name laptop"
    )
    assert "NAME" in page.token_command(AnonymousUser())
