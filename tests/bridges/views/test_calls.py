"""Running views through the project's middleware: as whom, and what of one call reaches another."""

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
from tests.declarations.world import asked
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
def around(settings):
    def added(*names, first=False):
        own = [name if "." in name else MIDDLEWARE + name for name in names]
        before, after = (own, []) if first else ([], own)
        settings.MIDDLEWARE = [*before, *settings.MIDDLEWARE, *after]

    return added


def visit(name, user=None, body=None, views=(), **given):
    """The content of a page."""
    with view_calls.request_environment():
        target = routes()[name].target(given)
        with view_calls.response_of(asked(user), target, body, views=views) as answer:
            return answer.response.content.decode()


def refusal_of(name, user, body=None):
    """What a page that answers by an error makes of it."""
    target = routes()[name].target({})
    with (
        view_calls.request_environment(),
        view_calls.response_of(asked(user), target, body) as answer,
    ):
        refusal(answer, "text")


def seen(user=None, **options):
    return json.loads(visit("seen", user, **options))


# Who.


def test_the_user_is_the_callers_without_a_query(alice, django_assert_num_queries):
    with django_assert_num_queries(0):
        found = seen(alice)
    assert (found["user"], found["session"]) == ("alice", str(alice.pk))


@pytest.mark.parametrize("name", ["impersonating", "cookie_user"])
def test_middleware_makes_nobody_else_of_the_caller(around, alice, bob, name):
    around(name)
    assert seen(alice)["user"] == "alice"
    assert seen()["user"] == ""


def test_an_asynchronous_view_sees_the_caller_as_well(around, alice, bob):
    around("impersonating")
    assert json.loads(visit("aseen", alice))["user"] == "alice"


def test_middleware_may_dress_the_caller(around, alice, monkeypatch):
    around("verifying")
    found = []
    monkeypatch.setattr(
        view_calls.ViewRequest, "mark_reached", lambda self, *a: found.append(self.user)
    )
    visit("seen", alice)
    assert found[0].is_verified() and found[0].pk == alice.pk


def test_who_is_signed_out_on_the_way_is_nobody(around, alice):
    around("signing_out")
    found = seen(alice)
    assert (found["user"], found["signed_in"]) == ("", False)


def test_a_view_may_sign_the_caller_out(alice):
    assert visit("leave", alice) == "False"
    assert seen(alice)["user"] == "alice"


def test_everybody_must_be_signed_in(around, alice):
    around("django.contrib.auth.middleware.LoginRequiredMiddleware")
    assert seen(alice)["user"] == "alice"
    with pytest.raises(view_calls.PermissionDenied):
        seen()


@pytest.mark.parametrize("backends", [["RemoteUserBackend"], ["RemoteUserBackend", "ModelBackend"]])
def test_users_of_a_web_server_are_not_signed_out(around, settings, alice, backends):
    settings.AUTHENTICATION_BACKENDS = [f"django.contrib.auth.backends.{one}" for one in backends]
    around("django.contrib.auth.middleware.RemoteUserMiddleware")
    assert seen(alice)["user"] == "alice"


def test_without_sessions_there_is_none(settings, alice):
    settings.MIDDLEWARE = []
    assert (seen(alice)["user"], seen(alice)["session"]) == ("alice", None)


def test_an_inactive_user_is_nobody(alice):
    alice.is_active = False
    assert seen(alice)["user"] == ""


# What is left of a call.


def test_a_session_is_one_calls_and_is_not_stored(settings, alice, bob):
    settings.SESSION_SAVE_EVERY_REQUEST = True
    assert [visit("visits", user) for user in (alice, alice, bob, None)] == ["1", "1", "1", "1"]
    assert not Session.objects.exists()


def test_language_and_the_rest_end_with_the_page(around, alice):
    around("french")
    before = (translation.get_language(), timezone.get_current_timezone_name())
    assert seen(alice)["language"] == "fr"
    assert visit("german", alice) == "Guten Tag"
    assert (translation.get_language(), timezone.get_current_timezone_name()) == before
    assert (get_urlconf(), get_script_prefix()) == (None, "/")


@pytest.mark.urls("tests.bridges.languages")
def test_addresses_and_pages_are_in_the_language_of_the_call(around, alice):
    around("django.middleware.locale.LocaleMiddleware")
    assert (seen(alice)["path"], seen(alice)["language"]) == ("/en/seen/", "en")
    with translation.override("de"):
        found = seen(alice)
        assert (found["path"], found["language"]) == ("/de/gesehen/", "de")
        assert json.loads(visit("bare", alice))["language"] == "de"
        assert translation.get_language() == "de"


def test_a_time_zone_that_was_set_is_kept(alice):
    with timezone.override("Asia/Tokyo"):
        seen(alice)
        assert timezone.get_current_timezone_name() == "Asia/Tokyo"


def test_the_calls_connection_is_kept(settings, alice):
    settings.DATABASES["default"]["CONN_MAX_AGE"] = 0
    before = connection.connection
    visit("aseen", alice)
    assert connection.connection is before is not None


def test_a_cache_of_pages_keeps_users_apart(around, alice, bob):
    """Nobody here has a cookie, and pages vary by nothing else."""
    around("django.middleware.cache.UpdateCacheMiddleware", first=True)
    around("django.middleware.cache.FetchFromCacheMiddleware")
    users = [seen(user)["user"] for user in (alice, bob, alice, None, bob)]
    assert users == ["alice", "bob", "alice", "", "bob"]


def test_what_is_cached_for_nobody_is_for_no_caller(around, alice):
    around("django.middleware.cache.UpdateCacheMiddleware", first=True)
    around("django.middleware.cache.FetchFromCacheMiddleware")
    assert (visit("secret-of-user"), visit("secret-of-user", alice)) == ("for ", "for alice")


def test_what_is_cached_for_a_caller_is_not_for_visitors(around, alice, client, settings):
    settings.ALLOWED_HOSTS = ["shop.example"]
    settings.CSRF_TRUSTED_ORIGINS = []
    around("django.middleware.cache.UpdateCacheMiddleware", first=True)
    around("django.middleware.cache.FetchFromCacheMiddleware")
    assert "alice" in visit("secret-of-user", alice)
    there = client.get("/secret-of-user/", headers={"host": "shop.example"}, secure=True)
    assert "alice" not in there.content.decode()


# What is run.


def test_the_view_is_told_what_is_true(alice, settings):
    settings.FORCE_SCRIPT_NAME = "/shop"
    found = seen(alice)
    assert (found["path"], found["secure"], found["host"]) == ("/shop/seen/", True, "shop.example")
    assert found["authorization"] is None


def test_a_host_there_is_not_is_refused(alice, settings):
    settings.ALLOWED_HOSTS = ["other.example"]
    with pytest.raises(ToolError, match="400"):
        refusal_of("seen", alice)


def test_a_middleware_sends_nobody_to_another_view(around, alice):
    around("elsewhere")
    with pytest.raises(view_calls.Http404):
        seen(alice)


def test_a_target_is_of_one_view_and_its_arguments(alice):
    wrong = [
        Target("seen", "/secret/", {}),
        Target("text", "/plain/s/a/", {"text": "b"}),
        Target("seen", "/nowhere/", {}),
    ]
    for target in wrong:
        with view_calls.request_environment(), pytest.raises(view_calls.Http404):
            view_calls.response_of(asked(alice), target).__enter__()


def test_what_answers_in_place_of_a_view_did_nothing(around, alice):
    around("closed")
    assert visit("seen", alice) == "We are closed."
    with pytest.raises(ToolError, match="nothing was done"):
        visit("seen", alice, Body())


def test_limits_of_uploads_hold(alice, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10
    assert seen(alice, body=Body(b"a=b"))["post"] == {"a": ["b"]}
    with pytest.raises(ToolError, match="413|400"):
        refusal_of("seen", alice, Body(b"a=" + b"x" * 20))


def test_forgery_is_not_asked_about(around, alice):
    """No browser sends what is sent here, and no other site can make one."""
    around("django.middleware.csrf.CsrfViewMiddleware")
    assert seen(alice, body=Body(b"a=1"))["post"] == {"a": ["1"]}


def test_a_followed_page_is_of_the_same_call(alice):
    with pytest.raises(ToolError, match="circle"):
        visit("loop", alice, views={"loop"}, number=1)


def test_the_end_of_a_request_is_not_told(alice):
    """It lets go of connections, which the call still needs."""
    told = []
    for signal in (request_started, request_finished):
        signal.connect(told.append, weak=False, dispatch_uid="told")
    try:
        seen(alice)
    finally:
        for signal in (request_started, request_finished):
            signal.disconnect(dispatch_uid="told")
    assert told == []


def test_what_a_response_opened_is_closed(alice):
    target = Target("answer", "/answer/file/", {"kind": "file"})
    with view_calls.request_environment(), view_calls.response_of(asked(alice), target) as answer:
        file = answer.response.file_to_stream
        assert not file.closed
    assert file.closed


@pytest.mark.django_db(transaction=True)
def test_transactions_of_requests_are_as_the_project_wants_them(alice, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    with pytest.raises(RuntimeError):
        visit("answer", alice, kind="fails")
    assert not Tag.objects.exists()


def test_calls_at_once_are_each_their_users(shared_db, settings, alice, bob):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"THREADS": 3}

    async def all_at_once():
        users = [alice, bob, None] * 10
        jobs = [threads.tools.run(visit, name, user) for user in users for name in NAMES]
        return await asyncio.gather(*jobs)

    expected = [
        answer for name in ["alice", "bob", ""] * 10 for answer in ("1", f"for {name}", "Guten Tag")
    ]
    assert asyncio.run(all_at_once()) == expected


NAMES = ("visits", "secret-of-user", "german")


def test_middleware_is_loaded_once(around, alice, settings):
    around("french")
    seen(alice)
    with_it = view_calls._handler.cache_info().misses
    seen(alice)
    assert view_calls._handler.cache_info().misses == with_it
    settings.SECURE_SSL_REDIRECT = True
    seen(alice)
    assert view_calls._handler.cache_info().misses > 0


def test_a_wire_request_has_nothing_of_a_browsers(alice):
    target = Target("seen", "/seen/", {})
    with view_calls.request_environment(), view_calls.response_of(asked(alice), target) as answer:
        request = answer.request
    assert isinstance(request, HttpRequest)
    assert request.META["REMOTE_ADDR"] == ""
    assert list(request.COOKIES) == ["sessionid"]
    assert not Session.objects.filter(pk=request.COOKIES["sessionid"]).exists()
