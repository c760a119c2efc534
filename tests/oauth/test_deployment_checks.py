"""System checks of the login page, the middleware, the cache and HTTPS of a project."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.auth.views import LoginView
from django.core.checks import Info, Warning, registry
from django.http import HttpResponse
from django.test import Client, override_settings
from django.urls import clear_script_prefix, path, set_script_prefix

from django_mcp.oauth.checks import check_login, check_surroundings
from tests.storage.rows import given

from .conftest import alice, in_public, public_client, web  # noqa: F401
from .consent import AUTHORIZE, fresh_cores, url  # noqa: F401

DUMMY = "django.core.cache.backends.dummy.DummyCache"
SHARED = "django.core.cache.backends.db.DatabaseCache"
LOCAL = "django.core.cache.backends.locmem.LocMemCache"
HTTPS = {"SECURE_PROXY_SSL_HEADER": ("HTTP_X_FORWARDED_PROTO", "https")}


def with_cache(backend):
    return override_settings(CACHES={"default": {"BACKEND": backend, "LOCATION": "kept"}}, **HTTPS)


def page(request):
    return HttpResponse("Who are you?")


class OwnLogin(LoginView):
    template_name = "admin/login.html"


PAGES = [
    path("in/", page, name="sign-in"), path("own/", OwnLogin.as_view()),
    path("admins/", LoginView.as_view(template_name="admin/login.html")),
    path("bare/", LoginView.as_view(template_name="nowhere.html"), name="bare"),
]  # fmt: skip


def with_login_url(login):
    urls = type("urls", (), {"urlpatterns": PAGES})
    return override_settings(ROOT_URLCONF=urls, LOGIN_URL=login)


def check_ids(check):
    messages = check()
    for message in messages:
        kind = {"I": Info, "W": Warning}[message.id.partition(".")[2][0]]
        assert type(message) is kind and message.hint
    return [message.id.partition(".")[2] for message in messages]


def test_checks_are_registered():
    assert check_login in registry.registry.registered_checks
    assert check_surroundings in registry.registry.deployment_checks


@pytest.mark.parametrize(
    "login", ["/in/", "/in/?by=mail", "sign-in", "/own/", "/admins/", "https://sso.example/in"]
)
def test_existing_login_page_has_no_messages(login):
    with with_login_url(login):
        assert check_ids(check_login) == []


@pytest.mark.parametrize(
    ("login", "told"),
    [
        ("/accounts/login/", "no URL pattern"), ("account_login", "no URL pattern"),
        ("/in", "no URL pattern"), ("", "no URL pattern"),
        ("/bare/", "'nowhere.html' does not exist"), ("bare", "'nowhere.html' does not exist"),
    ],
)  # fmt: skip
def test_missing_login_page_or_template_is_a_warning(login, told):
    with with_login_url(login):
        assert check_ids(check_login) == ["W040"] and told in check_login()[0].msg


def test_login_template_with_syntax_error_is_a_warning(tmp_path):
    (tmp_path / "nowhere.html").write_text("{% nothing %}")
    with (
        with_login_url("bare"),
        override_settings(TEMPLATES=[settings.TEMPLATES[0] | {"DIRS": [tmp_path]}]),
    ):
        assert "has a syntax error" in check_login()[0].msg


def test_login_page_below_a_script_name_is_found():
    set_script_prefix("/app/")
    try:
        for login in ("/app/in/", "sign-in"):
            with with_login_url(login):
                assert check_ids(check_login) == []
    finally:
        clear_script_prefix()


class OwnAuthentication(AuthenticationMiddleware):
    """A project's own."""


def test_missing_authentication_middleware_is_a_warning():
    for path_ in (
        f"{__name__}.OwnAuthentication",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ):
        with with_login_url("/in/"), override_settings(MIDDLEWARE=["nowhere.at_all", path_]):
            assert check_ids(check_login) == []
    with with_login_url("/in/"), override_settings(MIDDLEWARE=["nowhere.at_all"]):
        assert check_ids(check_login) == ["W041"]


def test_project_without_urls_has_no_messages():
    with override_settings(ROOT_URLCONF=None):
        assert check_ids(check_login) == []


@pytest.mark.parametrize(("backend", "told"), [(DUMMY, ["W042"]), (LOCAL, ["W042"]), (SHARED, [])])
def test_cache_that_processes_do_not_share_is_a_warning(backend, told):
    with with_cache(backend):
        assert check_ids(check_surroundings) == told


def test_invalid_cache_backend_is_left_to_other_checks():
    with with_cache("nowhere.Cache"):
        assert check_ids(check_surroundings) == []


@pytest.mark.parametrize(
    "fine",
    [HTTPS, {"CSRF_TRUSTED_ORIGINS": ["https://shop.example"]}, {"URL": "http://shop.example"}],
)
def test_missing_https_settings_are_reported(fine):
    with override_settings(CACHES={"default": {"BACKEND": SHARED, "LOCATION": "kept"}}):
        assert check_ids(check_surroundings) == ["I043"]
        with given(**fine) if "URL" in fine else override_settings(**fine):
            assert check_ids(check_surroundings) == []


def test_form_is_rejected_behind_a_proxy_without_https_settings(alice, public_client):  # noqa: F811
    """Django rejects the form with 403, as the message of the check says."""
    behind = Client(enforce_csrf_checks=True, headers={"host": "shop.example"})
    behind.force_login(alice)
    asked = behind.get(url(public_client))
    form = {"csrfmiddlewaretoken": asked.cookies["csrftoken"].value, "allow": "true"}
    said = {"origin": "https://shop.example", "x-forwarded-proto": "https"}
    assert behind.post(url(public_client), form, headers=said).status_code == 403
    with override_settings(**HTTPS):
        assert behind.post(url(public_client), form, headers=said).status_code == 302
