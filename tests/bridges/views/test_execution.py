"""Execution of views through the project's middleware: the user, isolation of calls, and limits."""

from __future__ import annotations

import asyncio
import json

import pytest
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.core.signals import request_finished, request_started
from django.db import connection
from django.http import HttpRequest
from django.urls import get_script_prefix, get_urlconf
from django.utils import timezone, translation

from django_mcp.bridges.views import execution as view_calls
from django_mcp.bridges.views.requests import Body
from django_mcp.bridges.views.results import refusal
from django_mcp.bridges.views.urls import Target, routes
from django_mcp.exceptions import ToolError
from django_mcp.runtime import threads
from tests.declarations.helpers import make_request
from tests.shop.models import Tag

from .. import site

pytestmark = [pytest.mark.urls("tests.bridges.site"), pytest.mark.django_db]
MIDDLEWARE = "tests.bridges.middleware."


@pytest.fixture(autouse=True)
def project(settings):
    settings.TEMPLATES = site.TEMPLATES
    settings.ALLOWED_HOSTS = ["shop.example"]
    cache.clear()


@pytest.fixture
def add_middleware(settings):
    def added(*names, first=False):
        own = [name if "." in name else MIDDLEWARE + name for name in names]
        before, after = (own, []) if first else ([], own)
        settings.MIDDLEWARE = [*before, *settings.MIDDLEWARE, *after]

    return added


def render_view(name, user=None, body=None, views=(), **given):
    """Return the content of a view's response."""
    with view_calls.request_environment():
        target = routes()[name].target(given)
        with view_calls.response_of(make_request(user), target, body, views=views) as answer:
            return answer.response.content.decode()


def raise_refusal(name, user, body=None):
    """Raise the error that the response of a view becomes."""
    target = routes()[name].target({})
    with (
        view_calls.request_environment(),
        view_calls.response_of(make_request(user), target, body) as answer,
    ):
        refusal(answer, "text")


def seen_request(user=None, **options):
    return json.loads(render_view("seen", user, **options))


# The user.


def test_view_has_the_user_of_the_call_without_a_query(alice, django_assert_num_queries):
    with django_assert_num_queries(0):
        found = seen_request(alice)
    assert (found["user"], found["session"]) == ("alice", str(alice.pk))


@pytest.mark.parametrize("name", ["impersonating", "cookie_user"])
def test_middleware_cannot_replace_the_user(add_middleware, alice, bob, name):
    add_middleware(name)
    assert seen_request(alice)["user"] == "alice"
    assert seen_request()["user"] == ""


def test_asynchronous_view_has_the_user_of_the_call(add_middleware, alice, bob):
    add_middleware("impersonating")
    assert json.loads(render_view("aseen", alice))["user"] == "alice"


def test_middleware_can_add_attributes_to_the_user(add_middleware, alice, monkeypatch):
    add_middleware("verifying")
    found = []
    monkeypatch.setattr(
        view_calls.ViewRequest, "mark_reached", lambda self, *a: found.append(self.user)
    )
    render_view("seen", alice)
    assert found[0].is_verified() and found[0].pk == alice.pk


def test_user_logged_out_by_middleware_is_anonymous(add_middleware, alice):
    add_middleware("signing_out")
    found = seen_request(alice)
    assert (found["user"], found["signed_in"]) == ("", False)


def test_logout_in_a_view_lasts_for_one_call(alice):
    assert render_view("leave", alice) == "False"
    assert seen_request(alice)["user"] == "alice"


def test_login_required_middleware_refuses_anonymous_users(add_middleware, alice):
    add_middleware("django.contrib.auth.middleware.LoginRequiredMiddleware")
    assert seen_request(alice)["user"] == "alice"
    with pytest.raises(view_calls.PermissionDenied):
        seen_request()


@pytest.mark.parametrize("backends", [["RemoteUserBackend"], ["RemoteUserBackend", "ModelBackend"]])
def test_remote_user_middleware_does_not_log_the_user_out(
    add_middleware, settings, alice, backends
):
    settings.AUTHENTICATION_BACKENDS = [f"django.contrib.auth.backends.{one}" for one in backends]
    add_middleware("django.contrib.auth.middleware.RemoteUserMiddleware")
    assert seen_request(alice)["user"] == "alice"


def test_view_without_session_middleware_has_no_session(settings, alice):
    settings.MIDDLEWARE = []
    assert (seen_request(alice)["user"], seen_request(alice)["session"]) == ("alice", None)


def test_inactive_user_is_anonymous(alice):
    alice.is_active = False
    assert seen_request(alice)["user"] == ""


# Isolation of calls.


def test_session_lasts_for_one_call_and_is_not_stored(settings, alice, bob):
    settings.SESSION_SAVE_EVERY_REQUEST = True
    assert [render_view("visits", user) for user in (alice, alice, bob, None)] == [
        "1",
        "1",
        "1",
        "1",
    ]
    assert not Session.objects.exists()


def test_language_time_zone_and_url_configuration_are_restored(add_middleware, alice):
    add_middleware("french")
    before = (translation.get_language(), timezone.get_current_timezone_name())
    assert seen_request(alice)["language"] == "fr"
    assert render_view("german", alice) == "Guten Tag"
    assert (translation.get_language(), timezone.get_current_timezone_name()) == before
    assert (get_urlconf(), get_script_prefix()) == (None, "/")


@pytest.mark.urls("tests.bridges.languages")
def test_url_and_view_are_in_the_language_of_the_call(add_middleware, alice):
    add_middleware("django.middleware.locale.LocaleMiddleware")
    assert (seen_request(alice)["path"], seen_request(alice)["language"]) == ("/en/seen/", "en")
    with translation.override("de"):
        found = seen_request(alice)
        assert (found["path"], found["language"]) == ("/de/gesehen/", "de")
        assert json.loads(render_view("bare", alice))["language"] == "de"
        assert translation.get_language() == "de"


def test_active_time_zone_is_kept(alice):
    with timezone.override("Asia/Tokyo"):
        seen_request(alice)
        assert timezone.get_current_timezone_name() == "Asia/Tokyo"


def test_database_connection_of_the_call_is_kept(settings, alice):
    settings.DATABASES["default"]["CONN_MAX_AGE"] = 0
    before = connection.connection
    render_view("aseen", alice)
    assert connection.connection is before is not None


def test_page_cache_separates_users(add_middleware, alice, bob):
    """The requests have no cookies, and the pages do not vary by other headers."""
    add_middleware("django.middleware.cache.UpdateCacheMiddleware", first=True)
    add_middleware("django.middleware.cache.FetchFromCacheMiddleware")
    users = [seen_request(user)["user"] for user in (alice, bob, alice, None, bob)]
    assert users == ["alice", "bob", "alice", "", "bob"]


def test_page_cached_for_anonymous_users_is_not_used_for_a_user(add_middleware, alice):
    add_middleware("django.middleware.cache.UpdateCacheMiddleware", first=True)
    add_middleware("django.middleware.cache.FetchFromCacheMiddleware")
    assert (render_view("secret-of-user"), render_view("secret-of-user", alice)) == (
        "for ",
        "for alice",
    )


def test_page_cached_for_a_user_is_not_used_for_browsers(add_middleware, alice, client, settings):
    settings.ALLOWED_HOSTS = ["shop.example"]
    settings.CSRF_TRUSTED_ORIGINS = []
    add_middleware("django.middleware.cache.UpdateCacheMiddleware", first=True)
    add_middleware("django.middleware.cache.FetchFromCacheMiddleware")
    assert "alice" in render_view("secret-of-user", alice)
    there = client.get("/secret-of-user/", headers={"host": "shop.example"}, secure=True)
    assert "alice" not in there.content.decode()


# The request.


def test_request_has_the_public_host_and_script_name(alice, settings):
    settings.FORCE_SCRIPT_NAME = "/shop"
    found = seen_request(alice)
    assert (found["path"], found["secure"], found["host"]) == ("/shop/seen/", True, "shop.example")
    assert found["authorization"] is None


def test_host_that_is_not_allowed_is_refused(alice, settings):
    settings.ALLOWED_HOSTS = ["other.example"]
    with pytest.raises(ToolError, match="400"):
        raise_refusal("seen", alice)


def test_middleware_cannot_change_the_view(add_middleware, alice):
    add_middleware("elsewhere")
    with pytest.raises(view_calls.Http404):
        seen_request(alice)


def test_target_with_another_view_or_arguments_is_not_found(alice):
    wrong = [
        Target("seen", "/secret/", {}),
        Target("text", "/plain/s/a/", {"text": "b"}),
        Target("seen", "/nowhere/", {}),
    ]
    for target in wrong:
        with view_calls.request_environment(), pytest.raises(view_calls.Http404):
            view_calls.response_of(make_request(alice), target).__enter__()


def test_post_answered_by_middleware_instead_of_the_view_is_an_error(add_middleware, alice):
    add_middleware("closed")
    assert render_view("seen", alice) == "We are closed."
    with pytest.raises(ToolError, match="the view did not run"):
        render_view("seen", alice, Body())


def test_upload_limit_is_enforced(alice, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10
    assert seen_request(alice, body=Body(b"a=b"))["post"] == {"a": ["b"]}
    with pytest.raises(ToolError, match="413|400"):
        raise_refusal("seen", alice, Body(b"a=" + b"x" * 20))


def test_csrf_check_is_skipped(add_middleware, alice):
    """The request does not come from a browser, so another site cannot forge it."""
    add_middleware("django.middleware.csrf.CsrfViewMiddleware")
    assert seen_request(alice, body=Body(b"a=1"))["post"] == {"a": ["1"]}


def test_redirect_loop_is_an_error(alice):
    with pytest.raises(ToolError, match="form a loop"):
        render_view("loop", alice, views={"loop"}, number=1)


def test_request_signals_are_not_sent(alice):
    """Their receivers close database connections, which the call still needs."""
    signals = []
    for signal in (request_started, request_finished):
        signal.connect(signals.append, weak=False, dispatch_uid="told")
    try:
        seen_request(alice)
    finally:
        for signal in (request_started, request_finished):
            signal.disconnect(dispatch_uid="told")
    assert signals == []


def test_file_of_a_response_is_closed(alice):
    target = Target("answer", "/answer/file/", {"kind": "file"})
    with (
        view_calls.request_environment(),
        view_calls.response_of(make_request(alice), target) as answer,
    ):
        file = answer.response.file_to_stream
        assert not file.closed
    assert file.closed


@pytest.mark.django_db(transaction=True)
def test_atomic_requests_is_respected(alice, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    with pytest.raises(RuntimeError):
        render_view("answer", alice, kind="fails")
    assert not Tag.objects.exists()


def test_concurrent_calls_have_their_own_user(shared_db, settings, alice, bob):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"THREADS": 3}

    async def all_at_once():
        users = [alice, bob, None] * 10
        jobs = [threads.tools.run(render_view, name, user) for user in users for name in NAMES]
        return await asyncio.gather(*jobs)

    expected = [
        answer for name in ["alice", "bob", ""] * 10 for answer in ("1", f"for {name}", "Guten Tag")
    ]
    assert asyncio.run(all_at_once()) == expected


NAMES = ("visits", "secret-of-user", "german")


def test_middleware_is_loaded_once_for_each_configuration(add_middleware, alice, settings):
    add_middleware("french")
    seen_request(alice)
    with_it = view_calls._handler.cache_info().misses
    seen_request(alice)
    assert view_calls._handler.cache_info().misses == with_it
    settings.SECURE_SSL_REDIRECT = True
    seen_request(alice)
    assert view_calls._handler.cache_info().misses > 0


def test_request_contains_no_data_of_a_browser(alice):
    target = Target("seen", "/seen/", {})
    with (
        view_calls.request_environment(),
        view_calls.response_of(make_request(alice), target) as answer,
    ):
        request = answer.request
    assert isinstance(request, HttpRequest)
    assert request.META["REMOTE_ADDR"] == ""
    assert list(request.COOKIES) == ["sessionid"]
    assert not Session.objects.filter(pk=request.COOKIES["sessionid"]).exists()
