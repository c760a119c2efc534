"""What an attacker tries by way of views, forms and operations, each attack as a test."""

from __future__ import annotations

import pytest
from django.contrib.auth.decorators import login_required
from django.core.cache import cache
from django.http import Http404, HttpResponse
from django.urls import path, resolve
from django.utils.decorators import method_decorator
from django.views.decorators.cache import cache_page
from django.views.decorators.vary import vary_on_cookie, vary_on_headers
from django.views.generic import View

from django_mcp.bridges import view_pages
from django_mcp.bridges.views import ViewTools
from tests.bridges import site

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]
WORD = "hunter2"


@pytest.fixture(autouse=True)
def project(settings):
    settings.TEMPLATES = site.TEMPLATES
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "shop.example"]
    cache.clear()


# A site that was written for browsers and for tokens of its own.


def mine(request):
    return HttpResponse(f"of {request.user.get_username()}")


def drafts(request):
    """Keeps a draft for each session, as many sites do."""
    key = f"draft-{request.session.session_key}"
    before = cache.get(key, "")
    cache.set(key, f"{before}{request.user.get_username()} ")
    return HttpResponse(f"before: {before}")


def where(request):
    """What is at a path, which it lets the resolver say."""
    return HttpResponse(resolve(request.GET.get("at", "/nowhere/")).view_name)


def about_row(request):
    raise Http404({"row": WORD})


@method_decorator([cache_page(60), vary_on_headers("Authorization")], name="dispatch")
class OfToken(View):
    def get(self, request):
        return mine(request)


def commented(request):
    return HttpResponse(f"<p>Hello<!-- {WORD} --></p><p style='display: none'>{WORD}</p>")


urlpatterns = [
    path("cookie/", cache_page(60)(vary_on_cookie(mine)), name="cookie"),
    path("token/", OfToken.as_view(), name="token"),
    path("everybody/", cache_page(60)(mine), name="everybody"),
    path("drafts/", login_required(drafts), name="drafts"),
    path("where/", where, name="where"),
    path("about-row/", about_row, name="about-row"),
    path("commented/", commented, name="commented"),
    path("accounts/login/", mine, name="login"),
]


@pytest.fixture
def visit(server, connect):
    """Calls a view by its name as somebody, as a tool of a class of its own."""

    def visited(name, user, **arguments):
        if not server._records:
            server.register(type("SiteViews", (ViewTools,), {"get": [name], "pages": "text"}))
            server.ready()
        result = connect(user, server=server).call(name.replace("-", "_"), **arguments)
        return result["isError"], result["content"][0]["text"]

    return visited


@pytest.mark.parametrize("name", ["cookie", "token", "everybody"])
def test_no_cache_of_pages_shows_one_callers_to_another(visit, client, alice, bob, name):
    """Whatever a site's pages vary by, no browser's header tells two callers apart here."""
    told = [visit(name, user) for user in (alice, bob, alice)]
    assert told == [(False, "of alice"), (False, "of bob"), (False, "of alice")]
    there = client.get(f"/{name}/", headers={"host": "shop.example"}, secure=True)
    assert there.content == b"of "


def test_what_is_kept_by_session_is_nobody_elses(visit, alice, bob):
    """A caller's session has a name, as everybody's who is signed in."""
    assert visit("drafts", alice) == (False, "before:")
    assert visit("drafts", bob) == (False, "before:")


@pytest.mark.parametrize("name", ["where", "about-row"])
def test_a_page_that_is_not_there_tells_no_addresses(visit, alice, name):
    assert visit(name, alice) == (True, "Not found.")


@pytest.mark.parametrize("pages", ["markdown", "text"])
def test_what_nobody_sees_on_a_page_is_not_told(pages):
    told = getattr(view_pages, pages)(commented(None).content.decode())
    assert "Hello" in told and WORD not in told
