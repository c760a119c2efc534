"""What is told of the project around the authorization server, and what is fine there."""

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


def cached(backend):
    return override_settings(CACHES={"default": {"BACKEND": backend, "LOCATION": "kept"}}, **HTTPS)


def page(request):
    return HttpResponse("Who are you?")


class Own(LoginView):
    template_name = "admin/login.html"


PAGES = [
    path("in/", page, name="sign-in"), path("own/", Own.as_view()),
    path("admins/", LoginView.as_view(template_name="admin/login.html")),
    path("bare/", LoginView.as_view(template_name="nowhere.html"), name="bare"),
]  # fmt: skip


def logins(login):
    urls = type("urls", (), {"urlpatterns": PAGES})
    return override_settings(ROOT_URLCONF=urls, LOGIN_URL=login)


def ids(check):
    messages = check()
    for message in messages:
        kind = {"I": Info, "W": Warning}[message.id.partition(".")[2][0]]
        assert type(message) is kind and message.hint
    return [message.id.partition(".")[2] for message in messages]


def test_they_are_run():
    assert check_login in registry.registry.registered_checks
    assert check_surroundings in registry.registry.deployment_checks


@pytest.mark.parametrize(
    "login", ["/in/", "/in/?by=mail", "sign-in", "/own/", "/admins/", "https://sso.example/in"]
)
def test_a_page_to_sign_in_at(login):
    with logins(login):
        assert ids(check_login) == []


@pytest.mark.parametrize(
    ("login", "told"),
    [
        ("/accounts/login/", "no such page"), ("account_login", "no such page"),
        ("/in", "no such page"), ("", "no such page"),
        ("/bare/", "'nowhere.html' is missing"), ("bare", "'nowhere.html' is missing"),
    ],
)  # fmt: skip
def test_a_page_that_is_not_there(login, told):
    with logins(login):
        assert ids(check_login) == ["W040"] and told in check_login()[0].msg


def test_a_template_that_cannot_be_read(tmp_path):
    (tmp_path / "nowhere.html").write_text("{% nothing %}")
    with (
        logins("bare"),
        override_settings(TEMPLATES=[settings.TEMPLATES[0] | {"DIRS": [tmp_path]}]),
    ):
        assert "cannot be read" in check_login()[0].msg


def test_a_page_below_a_path():
    set_script_prefix("/app/")
    try:
        for login in ("/app/in/", "sign-in"):
            with logins(login):
                assert ids(check_login) == []
    finally:
        clear_script_prefix()


class Knowing(AuthenticationMiddleware):
    """A project's own."""


def test_requests_know_who_has_signed_in():
    for path_ in (f"{__name__}.Knowing", "django.contrib.auth.middleware.AuthenticationMiddleware"):
        with logins("/in/"), override_settings(MIDDLEWARE=["nowhere.at_all", path_]):
            assert ids(check_login) == []
    with logins("/in/"), override_settings(MIDDLEWARE=["nowhere.at_all"]):
        assert ids(check_login) == ["W041"]


def test_without_urls_there_is_no_page_to_look_for():
    with override_settings(ROOT_URLCONF=None):
        assert ids(check_login) == []


@pytest.mark.parametrize(("backend", "told"), [(DUMMY, ["W042"]), (LOCAL, ["W042"]), (SHARED, [])])
def test_a_cache_that_all_share(backend, told):
    with cached(backend):
        assert ids(check_surroundings) == told


def test_a_cache_that_is_none_is_for_others_to_tell():
    with cached("nowhere.Cache"):
        assert ids(check_surroundings) == []


@pytest.mark.parametrize(
    "fine",
    [HTTPS, {"CSRF_TRUSTED_ORIGINS": ["https://shop.example"]}, {"URL": "http://shop.example"}],
)
def test_who_tells_of_https(fine):
    with override_settings(CACHES={"default": {"BACKEND": SHARED, "LOCATION": "kept"}}):
        assert ids(check_surroundings) == ["I043"]
        with given(**fine) if "URL" in fine else override_settings(**fine):
            assert ids(check_surroundings) == []


def test_what_happens_if_nobody_does(alice, public_client):  # noqa: F811
    """Django refuses the form, as the message says."""
    behind = Client(enforce_csrf_checks=True, headers={"host": "shop.example"})
    behind.force_login(alice)
    asked = behind.get(url(public_client))
    form = {"csrfmiddlewaretoken": asked.cookies["csrftoken"].value, "allow": "true"}
    said = {"origin": "https://shop.example", "x-forwarded-proto": "https"}
    assert behind.post(url(public_client), form, headers=said).status_code == 403
    with override_settings(**HTTPS):
        assert behind.post(url(public_client), form, headers=said).status_code == 302
